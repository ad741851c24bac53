// SPDX-License-Identifier: Apache-2.0
// The tile loop of FlashAttention (Dao et al. 2022). Scores have queries in the SIMD lanes, S^T = K Q^T, so that K is
// read as it lies and max, sum and rescale never cross lanes; the output has its own columns there, O = P V.

// A key tile and a value tile stay in a 256 KB L2. A chunk is what is folded in one go, anchored at key 0 like its
// tiles; the chunks are merged in their order, whoever has folded them.
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
  Rows<Row> key, value;
  Rows<typename N::T> contained;  // value with its non-finite elements zeroed; made when the first panel asks
  enum { kUnknown, kFinite, kNonfinite } content;
};

// Brings the tile in, when the first panel asks for it: one that every row drops is never read.
template <class N, class Stored, class Row>
void open_tile(const Panel& panel, Tile<N, Row>& t, Scratch<N>& s) {
  if (t.open) return;
  const Problem& p = panel.p;
  const int width = padded<N>(p.dv);
  t.key = take_rows<N, Stored, Row>(p.key, panel.head(0), t.first, t.count, p.d, p.d, s.key);
  t.value = take_rows<N, Stored, Row>(p.value, panel.head(0), t.first, t.count, p.dv, width, s.value);
  if constexpr (Tiled<N>::kUse) {
    s.tiled.take_keys(t.key, t.count, p.d);
    s.tiled.take_values(t.value, t.count, p.dv, s.contained);
  }
  t.open = true;
}

template <class N, class Row>
Ahead keys_after(const Problem& p, const Tile<N, Row>& t) {
  const int64_t rest = p.keys - t.first, end = 2 * t.count < rest ? 2 * t.count : rest;
  return {t.key, p.d, t.count, end};
}

// Whether the values must be contained: the tile holds one that is not finite.
template <class N, class Row>
bool holds_nonfinite(const Problem& p, Tile<N, Row>& t, Scratch<N>& s) {
  typedef Tile<N, Row> Tiled;
  const int width = padded<N>(p.dv);
  if (t.content == Tiled::kUnknown) {
    t.content = all_finite<N>(t.value, t.count, width) ? Tiled::kFinite : Tiled::kNonfinite;
    if (t.content == Tiled::kNonfinite) t.contained = zero_nonfinite(t.value, t.count, width, s.contained);
  }
  return t.content == Tiled::kNonfinite;
}

// The products of values that no tile took: finite ones as a target without tiles makes them, then the others.
template <class N, class Stored, class Row>
void add_apart(const Panel& panel, const Tile<N, Row>& t, int begin, int end, Scratch<N>& s, typename N::T* out) {
  const int width = padded<N>(panel.p.dv);
  typename N::T one[Scratch<N>::kPanel];
  for (typename N::T& x : one) x = 1;
  accumulate<N>(s.scores, Rows<typename N::T>{s.contained, width}, begin, end, panel.count, width, one, out, no_step);
  add_nonfinite<N, Stored>(panel, t.first, begin, end, s.scores, width, out);
}

// Up to so many rows are a few: keys then are the better lanes.
constexpr int kFew = 4;
template <int R>
struct Few {
  static constexpr int kRows = R;
};

// q . k of one panel and the tile's keys [begin, end).
template <class N, int C, class Row>
void score_panel(const Panel& panel, const Tile<N, Row>& t, int begin, int end, Scratch<N>& s) {
  typedef typename N::T T;
  const Problem& p = panel.p;
  const T scale = static_cast<T>(p.scale);
  const T* const query = s.query + ptrdiff_t(panel.first) * p.d;
  if constexpr (Tiled<N>::kUse) {
    return s.tiled.template score<C>(panel, t.key, begin, end, query, s.scores);
  } else if constexpr (C == 1 && N::kLanes > 1) {
    const auto few = [&](auto rows) {
      few_scores<N, decltype(rows)::kRows>(t.key, begin, end, query, p.d, scale, s.scores,
                                           Ahead(t.value, p.dv, begin, end));
    };
    if (panel.count == 1) return few(Few<1>{});
    if (panel.count == 2) return few(Few<2>{});
    if (panel.count <= kFew) return few(Few<4>{});
  }
  scores<N, C>(t.key, begin, end, query, p.d, scale, s.scores);
}

// From q . k to the scores that the softmax is taken of: softcap, bias, mask. Returns whether a pair was dropped.
template <class N, int C>
bool shape_scores(const Panel& panel, const PanelCover& kept, int64_t first, bool* seen, Scratch<N>& s) {
  typedef typename N::T T;
  const Problem& p = panel.p;
  const T lowest = -__builtin_inff();
  if (p.softcap != 0) cap<N, C>(kept.begin, kept.end, static_cast<T>(p.softcap), s.scores);
  const bool by_bias = add_biases<N>(panel, first, kept.begin, kept.end, s.scores);
  // What one bias drops, another may have made a NaN of.
  if (by_bias && p.bias_count > 1) drop_by_biases<N>(panel, first, kept.begin, kept.end, lowest, s.scores);
  if (!kept.full) drop<N, C>(s.kept, kept.begin, kept.end, lowest, s.scores);
  for (int r = 0; r < panel.count; ++r) {
    if (seen[r] || !kept.keeps[r]) continue;
    seen[r] = !by_bias || sees_one<T>(panel, r, first, kept.begin, kept.end);
  }
  return by_bias || !kept.full;
}

// One panel of query rows against one tile of keys.
template <class N, class Stored, int C, class Row>
void attend_panel(const Panel& panel, Tile<N, Row>& t, const State<N>& to, Scratch<N>& s) {
  const Problem& p = panel.p;
  const Reach& reach = s.reach[panel.first / Scratch<N>::kPanel];
  const PanelCover kept = cover_panel<N>(panel, reach, t.first, t.count, s.kept);
  if (kept.begin >= kept.end) return;
  open_tile<N, Stored>(panel, t, s);
  const int at = panel.first, width = padded<N>(p.dv);
  typename N::T* const out = to.out + ptrdiff_t(at) * width;

  score_panel<N, C>(panel, t, kept.begin, kept.end, s);
  const bool drops = shape_scores<N, C>(panel, kept, t.first, to.seen + at, s);
  fold<N, C>(kept.begin, kept.end, s.scores, to.max + at, to.sum + at, s.shrink);
  if constexpr (Tiled<N>::kUse) {
    s.tiled.accumulate(s.scores, kept.begin, kept.end, panel.count, width, s.shrink, out);
    if (!s.tiled.all_fit) add_apart<N, Stored>(panel, t, kept.begin, kept.end, s, out);
  } else if (drops && holds_nonfinite(p, t, s)) {
    accumulate<N>(s.scores, t.contained, kept.begin, kept.end, panel.count, width, s.shrink, out, no_step);
    add_nonfinite<N, Stored>(panel, t.first, kept.begin, kept.end, s.scores, width, out);
  } else if (C == 1 && panel.count <= kFew) {
    few_accumulate<N>(s.scores, t.value, kept.begin, kept.end, panel.count, width, s.shrink, out, keys_after(p, t));
  } else {
    accumulate<N>(s.scores, t.value, kept.begin, kept.end, panel.count, width, s.shrink, out, no_step);
  }
}

// Vectors that hold no row are left out: a lane's bits do not depend on how many lanes work beside it.
template <class N, class Stored, int C, class Row>
void attend_rows(const Panel& panel, Tile<N, Row>& t, const State<N>& to, Scratch<N>& s) {
  if constexpr (C > 1) {
    if (panel.count <= (C - 1) * N::kLanes) return attend_rows<N, Stored, C - 1>(panel, t, to, s);
  }
  attend_panel<N, Stored, C>(panel, t, to, s);
}

inline int panel_rows(const Block& block, int first, int most) {
  return block.rows - first < most ? block.rows - first : most;
}

// What is the same for all keys: the transposed queries of all panels, and what their masks reach.
template <class N, class Stored>
void prepare(const Problem& p, const Block& block, Scratch<N>& s) {
  constexpr int kPanel = Scratch<N>::kPanel;
  for (int r = 0; r < block.rows; r += kPanel) {
    const int rows = panel_rows(block, r, kPanel);
    pack_panel<N, Stored>(Panel{p, block, r, rows}, s.query + ptrdiff_t(r) * p.d);
    s.reach[r / kPanel] = reach(p, block, r, rows);
  }
  if constexpr (Tiled<N>::kUse) s.tiled.take_queries(p, block.rows, s.query);
}

// Folds the tiles of keys [begin, end), which begin at a tile's; false if it was told to stop.
template <class N, class Stored, class Row>
bool fold_tiles(const Problem& p, const Block& block, int64_t begin, int64_t end, const State<N>& to, Scratch<N>& s) {
  constexpr int kPanel = Scratch<N>::kPanel;
  const int tile = tile_keys(p.d, p.dv);
  for (int64_t first = begin; first < end; first += tile) {
    if (!p.go_on(p.watch)) return false;
    const typename Tiled<N>::Use use;  // no longer than a tile: what is asked in between may use such a unit too
    const int count = end - first < tile ? static_cast<int>(end - first) : tile;
    Tile<N, Row> t = {first, count, false, {}, {}, {}, Tile<N, Row>::kUnknown};
    for (int r = 0; r < block.rows; r += kPanel) {
      attend_rows<N, Stored, N::kCols>(Panel{p, block, r, panel_rows(block, r, kPanel)}, t, to, s);
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
    const bool few = block.rows <= kFew && padded<N>(p.dv) == p.dv;
    if ((few || Tiled<N>::kAsStored) && lies_in_rows<Stored>(p.key, p.key.data + p.key.head[head]) &&
        lies_in_rows<Stored>(p.value, p.value.data + p.value.head[head])) {
      return fold_tiles<N, Stored, Stored>(p, block, begin, end, to, s);
    }
  }
  return fold_tiles<N, Stored, typename N::T>(p, block, begin, end, to, s);
}

template <class N, class Stored>
void attend(const Problem& p, const Block& block, char* memory) {
  Scratch<N> s(tile_keys(p.d, p.dv), p.d, p.dv, memory);
  const Range all = hull(p, block);
  const int64_t chunk = chunk_keys(p.d, p.dv);
  prepare<N, Stored>(p, block, s);
  if (all.begin >= all.end) clear(s.total, block.rows, p.dv);
  const int64_t from = all.begin / chunk * chunk;
  for (int64_t first = from; first < all.end; first += chunk) {
    if (!fold_chunk<N, Stored>(p, block, first, first == from ? s.total : s.part, s)) return;
    if (first != from) merge(s.total, s.part, block.rows, p.dv, s);
  }
  finish<N, Stored>(p, block, s.total);
}

// The same in pieces: the state of one chunk, and what is made of the states of all of them.
template <class N, class Stored>
void attend_chunk(const Problem& p, const Block& block, int64_t chunk, char* state, char* memory) {
  Scratch<N> s(tile_keys(p.d, p.dv), p.d, p.dv, memory);
  Cutter cut{state};
  const State<N> to(cut, block.rows, p.dv);
  prepare<N, Stored>(p, block, s);
  fold_chunk<N, Stored>(p, block, chunk * chunk_keys(p.d, p.dv), to, s);
}

template <class N, class Stored>
void join_chunks(const Problem& p, const Block& block, char* const* states, int64_t chunks, char* memory) {
  Scratch<N> s(tile_keys(p.d, p.dv), p.d, p.dv, memory);
  clear(s.total, block.rows, p.dv);
  for (int64_t n = 0; n < chunks; ++n) {
    Cutter cut{states[n]};
    merge(s.total, State<N>(cut, block.rows, p.dv), block.rows, p.dv, s);
  }
  finish<N, Stored>(p, block, s.total);
}
