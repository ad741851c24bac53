// SPDX-License-Identifier: Apache-2.0
// Masks, as the kernel meets them: which part of a tile a panel needs, and which of its pairs are dropped.

// Keys [begin, end) of the tile hold all that the panel's rows keep; `full`: every row keeps all of them.
struct PanelCover {
  int begin, end;
  bool full;
};

inline PanelCover cover_panel(const Problem& p, const Block& block, int first_row, int rows, int64_t first, int count,
                              bool* seen) {
  PanelCover all{count, 0, true};
  Cover one[kBlockRows];
  for (int r = 0; r < rows; ++r) {
    one[r] = cover(p.mask, block.head[first_row + r], block.query[first_row + r], first, count);
    if (one[r].begin == one[r].end) continue;
    seen[first_row + r] = true;
    if (one[r].begin < all.begin) all.begin = one[r].begin;
    if (one[r].end > all.end) all.end = one[r].end;
  }
  for (int r = 0; r < rows; ++r) {
    all.full = all.full && one[r].solid && one[r].begin == all.begin && one[r].end == all.end;
  }
  return all;
}

// Writes `with` over the dropped pairs: a select, so that what stood there (a NaN too) is never computed with.
template <class N>
inline void drop(const Problem& p, const Block& block, int first_row, int rows, int64_t first, int begin, int end,
                 typename N::T with, int (*runs)[2], typename N::T* tile) {
  for (int r = 0; r < rows; ++r) {
    const int n = dropped(p.mask, block.head[first_row + r], block.query[first_row + r], first, begin, end, runs);
    for (int i = 0; i < n; ++i) {
      for (int j = runs[i][0]; j < runs[i][1]; ++j) tile[ptrdiff_t(j) * Scratch<N>::kPanel + r] = with;
    }
  }
}
