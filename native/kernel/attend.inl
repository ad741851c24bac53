// SPDX-License-Identifier: Apache-2.0
// The tile loop of FlashAttention (Dao et al. 2022), with queries in the SIMD lanes: S^T = K Q^T and O^T = V^T P^T,
// so that K and V are read as they lie and max, sum and rescale never cross lanes.

static_assert(96 <= kMaxTile, "a row's flags fit");

inline int tile_keys(int d, int dv) {
  const int width = d > dv ? d : dv;
  return width <= 256 ? 96 : 48;  // a key tile and a value tile stay in a 256 KB L2
}

template <class N>
size_t scratch_bytes(int d, int dv) {
  return Scratch<N>(tile_keys(d, dv), d, dv, nullptr).bytes;
}

template <class T>
struct Tile {
  int64_t first;  // its first key
  int count;
  bool open;
  Rows<T> key, value;
  Rows<T> contained;  // value with its non-finite elements zeroed; made when the first panel with a mask asks
  enum { kUnknown, kFinite, kNonfinite } content;
};

// Brings the tile in, when the first panel asks for it: one that every row drops is never read.
template <class N, class Stored>
void open_tile(const Panel& panel, Tile<typename N::T>& t, Scratch<N>& s) {
  if (t.open) return;
  t.key = pack_rows<N, Stored>(panel.p.key, panel.head(0), t.first, t.count, panel.p.d, s.key);
  t.value = pack_rows<N, Stored>(panel.p.value, panel.head(0), t.first, t.count, panel.p.dv, s.value);
  t.open = true;
}

// Whether the values must be contained: the tile holds one that is not finite.
template <class N>
bool holds_nonfinite(const Problem& p, Tile<typename N::T>& t, Scratch<N>& s) {
  typedef Tile<typename N::T> Tiled;
  if (t.content == Tiled::kUnknown) {
    t.content = all_finite<N>(t.value, t.count, p.dv) ? Tiled::kFinite : Tiled::kNonfinite;
    if (t.content == Tiled::kNonfinite) t.contained = zero_nonfinite(t.value, t.count, p.dv, s.contained);
  }
  return t.content == Tiled::kNonfinite;
}

// From q . k to the scores that the softmax is taken of: softcap, bias, mask. Returns whether a pair was dropped.
template <class N, int C>
bool shape_scores(const Panel& panel, const PanelCover& kept, int64_t first, bool* seen, Scratch<N>& s) {
  typedef typename N::T T;
  const Problem& p = panel.p;
  const T lowest = -__builtin_inff();
  if (p.softcap != 0) cap<N, C>(kept.begin, kept.end, static_cast<T>(p.softcap), s.scores);
  const bool by_bias = add_biases<N>(panel, first, kept.begin, kept.end, s.scores);
  if (by_bias) drop_by_biases<N>(panel, first, kept.begin, kept.end, lowest, s.scores);
  if (!kept.full) drop<N>(panel, first, kept.begin, kept.end, lowest, s.runs, s.scores);
  for (int r = 0; r < panel.count; ++r) {
    if (seen[r] || !kept.keeps[r]) continue;
    seen[r] = !by_bias || sees_one<T>(panel, r, first, kept.begin, kept.end);
  }
  return by_bias || !kept.full;
}

// One panel of query rows against one tile of keys.
template <class N, class Stored, int C>
void attend_panel(const Panel& panel, Tile<typename N::T>& t, bool* seen, Scratch<N>& s) {
  const Problem& p = panel.p;
  const PanelCover kept = cover_panel(panel, t.first, t.count);
  if (kept.begin >= kept.end) return;
  open_tile<N, Stored>(panel, t, s);
  const ptrdiff_t at = panel.first;
  typename N::T* const out = s.out + at * p.dv;

  scores<N, C>(t.key, kept.begin, kept.end, s.query + at * p.d, p.d, static_cast<typename N::T>(p.scale), s.scores);
  const bool drops = shape_scores<N, C>(panel, kept, t.first, seen + at, s);
  fold<N, C>(kept.begin, kept.end, s.scores, s.max + at, s.sum + at, s.shrink);
  const bool contain = drops && holds_nonfinite<N>(p, t, s);
  accumulate<N, C>(s.scores, contain ? t.contained : t.value, kept.begin, kept.end, p.dv, s.shrink, out);
  if (contain) add_nonfinite<N, Stored>(panel, t.first, kept.begin, kept.end, s.scores, out);
}

// Vectors that hold no row are left out: a lane's bits do not depend on how many lanes work beside it.
template <class N, class Stored, int C = N::kCols>
void attend_rows(const Panel& panel, Tile<typename N::T>& t, bool* seen, Scratch<N>& s) {
  if constexpr (C > 1) {
    if (panel.count <= (C - 1) * N::kLanes) return attend_rows<N, Stored, C - 1>(panel, t, seen, s);
  }
  attend_panel<N, Stored, C>(panel, t, seen, s);
}

inline int panel_rows(const Block& block, int first, int most) {
  return block.rows - first < most ? block.rows - first : most;
}

template <class N, class Stored>
void attend(const Problem& p, const Block& block, char* memory) {
  constexpr int kPanel = Scratch<N>::kPanel;
  const int tile = tile_keys(p.d, p.dv);
  Scratch<N> s(tile, p.d, p.dv, memory);
  bool seen[kBlockRows] = {};
  pack_queries<N, Stored>(p, block, s.query);
  for (ptrdiff_t i = 0; i < ptrdiff_t(kBlockRows) * p.dv; ++i) s.out[i] = 0;
  for (int r = 0; r < kBlockRows; ++r) {
    s.max[r] = -__builtin_inff();
    s.sum[r] = 0;
  }
  const Range all = hull(p, block);
  for (int64_t first = all.begin / tile * tile; first < all.end; first += tile) {  // anchored at key 0
    if (!p.go_on(p.watch)) return;
    const int count = p.keys - first < tile ? static_cast<int>(p.keys - first) : tile;
    Tile<typename N::T> t = {first, count, false, {}, {}, {}, Tile<typename N::T>::kUnknown};
    for (int r = 0; r < block.rows; r += kPanel) {
      attend_rows<N, Stored>(Panel{p, block, r, panel_rows(block, r, kPanel)}, t, seen, s);
    }
  }
  finish<N, Stored>(p, block, s, seen);
}
