// SPDX-License-Identifier: Apache-2.0
// Masks, as the kernel meets them: which part of a tile a panel needs, and which of its pairs are dropped.

// Keys [begin, end) of the tile hold all that the panel's rows keep; `full`: every row keeps all of them.
// keeps[r]: row r keeps a key. A bias of -inf may drop it later.
struct PanelCover {
  int begin, end;
  bool full;
  bool keeps[kBlockRows];
};

// A bit per key, a column of words per row.
inline void put(const Kept& row, int r, int panel, uint32_t* kept) {
  for (int word = 0; word < kMaxTile / 32; ++word) kept[word * panel + r] = row.word[word];
}

template <class N>
void keep_panel(const Panel& panel, int64_t first, int count, uint32_t* kept) {
  for (int r = 0; r < panel.count; ++r) {
    put(keep(panel.p.mask, panel.head(r), panel.query(r), first, count), r, Scratch<N>::kPanel, kept);
  }
}

// Fills `kept` where the cover is not full.
template <class N>
PanelCover cover_panel(const Panel& panel, int64_t first, int count, uint32_t* kept) {
  const Mask& mask = panel.p.mask;
  PanelCover all;
  all.begin = mask.kind == Mask::kFull ? 0 : count;
  all.end = count - all.begin;
  all.full = true;
  if (mask.kind == Mask::kFull) {
    for (int r = 0; r < panel.count; ++r) all.keeps[r] = true;
    return all;
  }
  Cover one[kBlockRows];
  for (int r = 0; r < panel.count; ++r) {
    one[r] = cover(mask, panel.head(r), panel.query(r), first, count);
    all.keeps[r] = one[r].begin < one[r].end;
    if (!all.keeps[r]) continue;
    if (one[r].begin < all.begin) all.begin = one[r].begin;
    if (one[r].end > all.end) all.end = one[r].end;
  }
  for (int r = 0; r < panel.count; ++r) {
    all.full = all.full && one[r].solid && one[r].begin == all.begin && one[r].end == all.end;
  }
  if (!all.full) keep_panel<N>(panel, first, count, kept);
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
