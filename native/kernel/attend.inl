// SPDX-License-Identifier: Apache-2.0
// The tile loop of FlashAttention (Dao et al. 2022), with queries in the SIMD lanes: S^T = K Q^T and O^T = V^T P^T,
// so that K and V are read as they lie and max, sum and rescale never cross lanes.

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
  Rows<T> key, value;
  Rows<T> contained;  // value with its non-finite elements zeroed; made when the first panel with a mask asks
  enum { kUnknown, kFinite, kNonfinite } content;
};

template <class T>
Tile<T> open_tile(const Problem& p, const Block& block, int64_t first, int count, T* key, T* value) {
  Tile<T> t;
  t.first = first;
  t.count = count;
  t.key = pack_rows<T>(p.key, block.head[0], first, count, p.d, key);
  t.value = pack_rows<T>(p.value, block.head[0], first, count, p.dv, value);
  t.content = Tile<T>::kUnknown;
  return t;
}

// One panel of query rows against one tile of keys.
template <class N, int C>
void attend_panel(const Problem& p, const Block& block, int first_row, int rows, Tile<typename N::T>& t, bool* seen,
                  Scratch<N>& s) {
  constexpr int kPanel = Scratch<N>::kPanel;
  const PanelCover kept = cover_panel(p, block, first_row, rows, t.first, t.count, seen);
  if (kept.begin >= kept.end) return;
  const ptrdiff_t panel = first_row / kPanel;
  typename N::T* const out = s.out + panel * p.dv * kPanel;

  scores<N, C>(t.key, kept.begin, kept.end, s.query + panel * p.d * kPanel, p.d, p.scale, s.scores);
  if (!kept.full) {
    drop<N>(p, block, first_row, rows, t.first, kept.begin, kept.end, -__builtin_inff(), s.runs, s.scores);
  }
  fold<N, C>(kept.begin, kept.end, s.scores, s.max + first_row, s.sum + first_row, s.shrink);
  if (!kept.full && t.content == Tile<typename N::T>::kUnknown) {
    const bool finite = all_finite(t.value, 0, t.count, p.dv);
    t.content = finite ? Tile<typename N::T>::kFinite : Tile<typename N::T>::kNonfinite;
    if (!finite) t.contained = zero_nonfinite(t.value, t.count, p.dv, s.value);
  }
  const bool contain = !kept.full && t.content == Tile<typename N::T>::kNonfinite;
  accumulate<N, C>(s.scores, contain ? t.contained : t.value, kept.begin, kept.end, p.dv, s.shrink, out);
  if (contain) {
    add_nonfinite<N>(p, block, first_row, rows, t.first, kept.begin, kept.end, s.scores, p.value, out);
  }
}

// Vectors that hold no row are left out: a lane's bits do not depend on how many lanes work beside it.
template <class N, int C = N::kCols>
void attend_rows(const Problem& p, const Block& block, int first_row, int rows, Tile<typename N::T>& t, bool* seen,
                 Scratch<N>& s) {
  if constexpr (C > 1) {
    if (rows <= (C - 1) * N::kLanes) return attend_rows<N, C - 1>(p, block, first_row, rows, t, seen, s);
  }
  attend_panel<N, C>(p, block, first_row, rows, t, seen, s);
}

template <class N>
void attend(const Problem& p, const Block& block, char* memory) {
  typedef typename N::T T;
  const int tile = tile_keys(p.d, p.dv);
  Scratch<N> s(tile, p.d, p.dv, memory);
  bool seen[kBlockRows] = {};
  pack_queries<N>(p, block, s.query);
  for (ptrdiff_t i = 0; i < ptrdiff_t(kBlockRows) * p.dv; ++i) s.out[i] = 0;
  for (int r = 0; r < kBlockRows; ++r) {
    s.max[r] = -__builtin_inff();
    s.sum[r] = 0;
  }
  const Range all = hull(p, block);
  for (int64_t first = all.begin / tile * tile; first < all.end; first += tile) {  // anchored at key 0
    const int count = p.keys - first < tile ? static_cast<int>(p.keys - first) : tile;
    Tile<T> t = open_tile<T>(p, block, first, count, s.key, s.value);
    for (int r = 0; r < block.rows; r += Scratch<N>::kPanel) {
      const int rows = block.rows - r < Scratch<N>::kPanel ? block.rows - r : Scratch<N>::kPanel;
      attend_rows<N>(p, block, r, rows, t, seen, s);
    }
  }
  finish<N>(p, block, s, seen);
}
