// SPDX-License-Identifier: Apache-2.0
// The tile loop of FlashAttention (Dao et al. 2022). Scores have queries in the SIMD lanes, S^T = K Q^T, so that K is
// read as it lies and max, sum and rescale never cross lanes; the output has its own columns there, O = P V.

// In float32 a key tile and a value tile take at most 192 KB up to a width of 512: they stay in a 256 KB L2. float64
// takes twice that. A chunk is what is folded in one go, anchored at key 0 like its tiles; the chunks are merged in
// their order, whoever has folded them.
constexpr int kChunkTiles = 16;

inline int tile_keys(int d, int dv) {
  const int width = d > dv ? d : dv;
  return width <= 256 ? 96 : 48;
}

inline int64_t chunk_keys(int d, int dv) { return kChunkTiles * tile_keys(d, dv); }

template <class N>
size_t scratch_bytes(int d, int dv) {
  return Scratch<N>(tile_keys(d, dv), d, dv, nullptr).cut.bytes;
}

template <class N>
size_t state_bytes(int rows, int dv) {
  Cutter cut{nullptr};
  State<N>(cut, rows, dv);
  return cut.bytes;
}

template <class N, class Row>
struct Tile {
  int64_t first;  // its first key
  int count;
  bool open;
  Rows<Row> key;
  Values<N, Row> value;
  Rows<typename N::T> contained;  // value with its non-finite elements zeroed; made when the first panel asks
  enum { kUnknown, kFinite, kNonfinite } content;
};

// Brings the tile in, when the first panel asks for it: one that every row drops is never read.
template <class N, class Stored, class Row>
void open_tile(const Panel& panel, Tile<N, Row>& t, Scratch<N>& s) {
  if (t.open) return;
  const Problem& p = panel.p;
  const int64_t head = panel.head(0);
  t.key = take_rows<N, Stored, Row>(p.key, head, t.first, t.count, p.d, p.d, true, s.key);
  t.value = take_values<N, Stored, Row>(panel, t.first, t.count, s.value);
  if constexpr (Unit<N>::kUse) {
    s.unit.take_keys(t.key, t.count, p.d);
    s.unit.take_values(t.value.rows, t.count, p.dv, panel.block.rows <= kFew<N>, s.contained);
  }
  t.open = true;
}

// The next tile's rows, or this one's if it is the last: the first half of them go with the products of the keys, the
// others with those of the values.
template <class N, class Row>
Ahead ahead_of(const Panel& panel, const Tile<N, Row>& t) {
  const Problem& p = panel.p;
  return {p.key, p.value, panel.head(0), t.first + t.count < p.keys ? t.first + t.count : t.first, p.d, p.dv};
}

// Whether the values must be contained: the tile holds one that is not finite.
template <class N, class Row>
bool holds_nonfinite(const Problem& p, Tile<N, Row>& t, Scratch<N>& s) {
  const int width = padded<N>(p.dv);
  if (t.content == t.kUnknown) {
    t.content = all_finite<N>(t.value, t.count, width) ? t.kFinite : t.kNonfinite;
    if (t.content == t.kNonfinite) t.contained = zero_nonfinite(t.value, t.count, width, s.contained);
  }
  return t.content == t.kNonfinite;
}

// q . k of one panel and the tile's keys [begin, end).
template <class N, int C, class Row>
void score_panel(const Panel& panel, const Tile<N, Row>& t, int begin, int end, Scratch<N>& s) {
  const Ahead ahead = ahead_of(panel, t);
  const typename N::T* const query = s.query + ptrdiff_t(panel.first) * panel.p.d;
  if constexpr (Unit<N>::kUse) {
    s.unit.template score<C>(panel, t.key, begin, end, query, s.scale, s.scores, ahead);
  } else {
    score_rows<N, C>(panel, t.key, begin, end, query, panel.p.d, s.scale, s.scores, ahead);
  }
}

// Softcap and biases; returns whether one of the biases is -inf.
template <class N, int C>
bool add_to_scores(const Panel& panel, int64_t first, int begin, int end, Scratch<N>& s) {
  typedef typename N::T T;
  if (panel.p.softcap != 0) cap<N, C>(begin, end, static_cast<T>(panel.p.softcap), s.scores);
  return add_biases<N>(panel, first, begin, end, s.scores);
}

// From q . k to the scores that the softmax is taken of: softcap, bias, mask. Returns whether a pair was dropped.
template <class N, int C>
bool shape_scores(const Panel& panel, const PanelCover& kept, int64_t first, bool* seen, Scratch<N>& s) {
  typedef typename N::T T;
  const Problem& p = panel.p;
  const T lowest = -__builtin_inff();
  const bool by_bias = add_to_scores<N, C>(panel, first, kept.begin, kept.end, s);
  // What one bias drops, another may have made a NaN of.
  if (by_bias && p.bias_count > 1) drop_by_biases<N>(panel, first, kept.begin, kept.end, lowest, s.scores);
  if (!kept.full) drop<N, C>(s.kept, kept.begin, kept.end, lowest, s.scores);
  for (int r = 0; r < panel.count; ++r) {
    if (seen[r] || !kept.keeps[r]) continue;
    seen[r] = !by_bias || sees_one<T>(panel, r, first, kept.begin, kept.end);
  }
  return by_bias || !kept.full;
}

// Keys [begin, end) that row r of the panel keeps by its mask, from the first to the last of them.
inline Range own_keys(const Panel& panel, int r, int64_t first, int begin, int end) {
  const auto kept = [&](int j) { return keeps(panel.p.mask, panel.head(r), panel.query(r), first + j); };
  while (begin < end && !kept(begin)) ++begin;
  while (begin < end && !kept(end - 1)) --end;
  return {begin, end};
}

// weights . v of a tile with values that are not finite: row by row, each in the order that it has alone.
template <class N, class Stored, class Row>
void add_rows_alone(const Panel& panel, const Tile<N, Row>& t, int begin, int end, typename N::T* out, Scratch<N>& s) {
  const int width = padded<N>(panel.p.dv);
  for (int r = 0; r < panel.count; ++r, out += width) {
    const Range own = own_keys(panel, r, t.first, begin, end);
    const int from = static_cast<int>(own.begin), to = static_cast<int>(own.end);
    bool drops = false;
    for (int j = from; j < to; ++j) drops = drops || !sees<typename N::T>(panel, r, t.first + j);
    const auto add = [&](const auto& rows) {
      accumulate<N>(s.scores + r, rows, from, to, 1, width, s.shrink + r, out, Alone{});
    };
    if (!drops) {
      add(t.value);
    } else {
      add(t.contained);
      add_nonfinite<N, Stored>(panel, r, t.first, from, to, s.scores, out);
    }
  }
}

// out = shrink * out + weights . v, where `drops` says that a weight is 0 because its pair is dropped.
template <class N, class Stored, class Row>
void add_values(const Panel& panel, Tile<N, Row>& t, int begin, int end, bool drops, typename N::T* out,
                Scratch<N>& s) {
  const int width = padded<N>(panel.p.dv);
  const auto add = [&](const auto& rows, const typename N::T* shrink, const auto& beside) {
    accumulate<N>(s.scores, rows, begin, end, panel.count, width, shrink, out, beside);
  };
  if constexpr (Unit<N>::kUse) {
    s.unit.weigh_values(panel, t.value.rows, t.count, s.scores, begin, end, s.shrink, out, s.contained,
                        ahead_of(panel, t));
    if (s.unit.all_fit) return;
    // Values out of the unit's range: finite ones as a target without one adds them, then the others.
    typename N::T one[Scratch<N>::kPanel];
    for (typename N::T& x : one) x = 1;
    add(Rows<typename N::T>{s.contained, width}, one, Alone{});
    for (int r = 0; !s.unit.all_finite && r < panel.count; ++r, out += width) {
      add_nonfinite<N, Stored>(panel, r, t.first, begin, end, s.scores, out);
    }
  } else if (drops && holds_nonfinite(panel.p, t, s)) {
    add_rows_alone<N, Stored>(panel, t, begin, end, out, s);
  } else if (reads_once<N>(panel)) {
    few_accumulate<N>(s.scores, t.value.rows, begin, end, panel.count, width, s.shrink, out, ahead_of(panel, t));
  } else {
    add(t.value, s.shrink, Alone{});
  }
}

// One panel of query rows against one tile of keys.
template <class N, class Stored, int C, class Row>
void attend_panel(const Panel& panel, Tile<N, Row>& t, const State<N>& to, Scratch<N>& s) {
  const Reach& reach = s.reach[panel.first / Scratch<N>::kPanel];
  const PanelCover kept = cover_panel<N>(panel, reach, t.first, t.count, s.kept);
  if (kept.begin >= kept.end) return;
  open_tile<N, Stored>(panel, t, s);
  const int at = panel.first;

  score_panel<N, C>(panel, t, kept.begin, kept.end, s);
  const bool drops = shape_scores<N, C>(panel, kept, t.first, to.seen + at, s);
  fold<N, C>(kept.begin, kept.end, panel.count, s.scores, to.max + at, to.sum + at, s.shrink);
  add_values<N, Stored>(panel, t, kept.begin, kept.end, drops, to.out + ptrdiff_t(at) * padded<N>(panel.p.dv), s);
}

// f(how many vectors hold so many rows). The others are left out: a lane's bits do not depend on how many lanes work
// beside it.
template <class N, int C = N::kCols, class F>
void with_vectors(int rows, F f) {
  if constexpr (C > 1) {
    if (rows <= (C - 1) * N::kLanes) return with_vectors<N, C - 1>(rows, f);
  }
  f(Count<C>{});
}

inline int panel_rows(const Block& block, int first, int most) {
  return block.rows - first < most ? block.rows - first : most;
}

// What is the same for all tiles: the scale, the transposed queries of all panels, and what their masks reach of these
// keys. Returns those that one of them may reach.
template <class N, class Stored>
Range prepare(const Problem& p, const Block& block, Range keys, Scratch<N>& s) {
  constexpr int kPanel = Scratch<N>::kPanel;
  Range all{keys.end, keys.begin};
  for (int l = 0; l < N::kLanes; ++l) s.scale[l] = static_cast<typename N::T>(p.scale);
  for (int r = 0; r < block.rows; r += kPanel) {
    const int rows = panel_rows(block, r, kPanel);
    pack_panel<N, Stored>(Panel{p, block, r, rows}, s.query + ptrdiff_t(r) * p.d);
    const Reach one = s.reach[r / kPanel] = reach(p, block, r, rows, keys);
    if (one.hull.begin < all.begin) all.begin = one.hull.begin;
    if (one.hull.end > all.end) all.end = one.hull.end;
  }
  if constexpr (Unit<N>::kUse) s.unit.take_queries(p, block.rows, s.query);
  return all;
}

// Folds the tiles of keys [begin, end), which begin at a tile's; false if it was told to stop.
template <class N, class Stored, class Row>
bool fold_tiles(const Problem& p, const Block& block, int64_t begin, int64_t end, const State<N>& to, Scratch<N>& s) {
  constexpr int kPanel = Scratch<N>::kPanel;
  const int tile = tile_keys(p.d, p.dv);
  for (int64_t first = begin; first < end; first += tile) {
    if (!p.go_on(p.watch)) return false;
    const typename Unit<N>::Use use;  // no longer than a tile: what is asked in between may use such a unit too
    const int count = end - first < tile ? static_cast<int>(end - first) : tile;
    Tile<N, Row> t = {first, count, false, {}, {}, {}, Tile<N, Row>::kUnknown};
    for (int r = 0; r < block.rows; r += kPanel) {
      const Panel panel{p, block, r, panel_rows(block, r, kPanel)};
      with_vectors<N>(panel.count,
                      [&](auto vectors) { attend_panel<N, Stored, decltype(vectors)::value>(panel, t, to, s); });
    }
  }
  return true;
}

// Folds one chunk of keys into an empty state. 16-bit tiles are widened once for all panels of a block; for a few rows
// they are read as they lie.
template <class N, class Stored>
bool fold_chunk(const Problem& p, const Block& block, int64_t begin, const State<N>& to, Scratch<N>& s) {
  const int64_t last = begin + chunk_keys(p.d, p.dv), end = last < p.keys ? last : p.keys;
  clear(to, block.rows, p.dv);
  if constexpr (sizeof(Stored) < sizeof(typename N::T)) {
    const int64_t head = block.head[0];
    const bool few = block.rows <= kFew<N> && padded<N>(p.dv) == p.dv;
    if ((few || Unit<N>::kAsStored) && lies_in_rows<Stored>(p.key, p.key.data + p.key.head[head]) &&
        lies_in_rows<Stored>(p.value, p.value.data + p.value.head[head])) {
      return fold_tiles<N, Stored, Stored>(p, block, begin, end, to, s);
    }
  }
  return fold_tiles<N, Stored, typename N::T>(p, block, begin, end, to, s);
}

template <class N, class Stored>
void attend(const Problem& p, const Block& block, char* memory) {
  Scratch<N> s(tile_keys(p.d, p.dv), p.d, p.dv, memory);
  const Range all = prepare<N, Stored>(p, block, {0, p.keys}, s);
  const int64_t chunk = chunk_keys(p.d, p.dv);
  if (all.begin >= all.end) clear(s.total, block.rows, p.dv);
  const int64_t from = all.begin / chunk * chunk;
  for (int64_t first = from; first < all.end; first += chunk) {
    const int64_t end = first + chunk < p.keys ? first + chunk : p.keys;
    // Between the first keys and a window there may be thousands of tiles. To join the state of no keys changes
    // nothing.
    if (first != from) {
      const Range near = hull(p, block, {first, end});
      if (near.begin >= near.end) continue;
    }
    if (!fold_chunk<N, Stored>(p, block, first, first == from ? s.total : s.part, s)) return;
    if (first != from) merge(s.total, s.part, block.rows, p.dv, s);
  }
  finish<N, Stored>(p, block, s.total);
}

template <class N>
State<N> state_at(const Problem& p, const Block& block, char* memory) {
  Cutter cut{memory};
  return State<N>(cut, block.rows, p.dv);
}

// The same in pieces: the state of one chunk, that of several in a row, and what is made of all of them.
template <class N, class Stored>
void attend_chunk(const Problem& p, const Block& block, int64_t chunk, char* state, char* memory) {
  Scratch<N> s(tile_keys(p.d, p.dv), p.d, p.dv, memory);
  const int64_t size = chunk_keys(p.d, p.dv), begin = chunk * size, end = begin + size < p.keys ? begin + size : p.keys;
  prepare<N, Stored>(p, block, {begin, end}, s);
  fold_chunk<N, Stored>(p, block, begin, state_at<N>(p, block, state), s);
}

template <class N>
void merge_chunk(const Problem& p, const Block& block, char* into, char* state, char* memory) {
  Scratch<N> s(tile_keys(p.d, p.dv), p.d, p.dv, memory);
  merge(state_at<N>(p, block, into), state_at<N>(p, block, state), block.rows, p.dv, s);
}

template <class N, class Stored>
void finish_chunks(const Problem& p, const Block& block, char* state) {
  finish<N, Stored>(p, block, state_at<N>(p, block, state));
}
