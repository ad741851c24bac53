// SPDX-License-Identifier: Apache-2.0
// Masks, as the kernel meets them: which part of a tile a panel needs, and which of its pairs are dropped.

// Keys [begin, end) of the tile hold all that the panel's rows keep; `full`: every row keeps all of them.
// keeps[r]: row r keeps a key. A bias of -inf may drop it later.
struct PanelCover {
  int begin, end;
  bool full;
  bool keeps[kBlockRows];
};

// A bit per key of the tile, a column of words per row of the panel.
template <class N>
Common keep_panel(const Panel& panel, int64_t first, int count, uint32_t* kept, bool* keeps) {
  constexpr int kPanel = Scratch<N>::kPanel;
  const Block& block = panel.block;
  const Common common =
      keep(panel.p.mask, block.head + panel.first, block.query + panel.first, panel.count, first, count, kept, kPanel);
  for (int r = 0; r < panel.count; ++r) {
    uint32_t one = 0;
    for (int n = 0; n < kTileWords; ++n) one |= kept[n * kPanel + r];
    keeps[r] = one != 0;
  }
  return common;
}

// Fills `kept` where the cover is not full.
template <class N>
PanelCover cover_panel(const Panel& panel, const Reach& reach, int64_t first, int count, uint32_t* kept) {
  PanelCover all;
  const bool whole = reach.common.begin <= first && first + count <= reach.common.end;
  all.begin = 0;
  all.end = whole ? count : 0;
  all.full = true;
  if (whole || first + count <= reach.hull.begin || reach.hull.end <= first) {
    for (int r = 0; r < panel.count; ++r) all.keeps[r] = whole;
    return all;
  }
  const Common common = keep_panel<N>(panel, first, count, kept, all.keeps);
  const Cover hull = cover_of(common.any);
  all.begin = hull.begin;
  all.end = hull.end;
  all.full = hull.solid && memcmp(&common.any, &common.every, sizeof common.any) == 0;
  return all;
}

// Writes `with` over the pairs of keys [begin, end) that are not kept: a select, so that what stood there (a NaN too)
// is never computed with, and no branch, for bits of no pattern are not to be guessed.
template <class N, int C>
inline void drop(const uint32_t* kept, int begin, int end, typename N::T with, typename N::T* tile) {
  constexpr int kPanel = Scratch<N>::kPanel;
  const typename N::V other = N::set(with);
  for (int word = begin / 32; word * 32 < end; ++word) {
    const int last = (end < word * 32 + 32 ? end : word * 32 + 32) - 1, from = begin > word * 32 ? begin : word * 32;
    for (int c = 0; c < C; ++c) {
      typename N::Bits bits = N::shift(N::bits(kept + word * kPanel + c * N::kLanes), 31 - last % 32);
      for (int j = last; j >= from; --j, bits = N::next(bits)) {
        typename N::T* const at = tile + ptrdiff_t(j) * kPanel + c * N::kLanes;
        N::store(at, N::select_top(bits, N::load(at), other));
      }
    }
  }
}
