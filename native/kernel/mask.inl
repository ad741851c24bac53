// SPDX-License-Identifier: Apache-2.0
// Masks, as the kernel meets them: which part of a tile a panel needs, and which of its pairs are dropped.

// The rows of a panel: `count` rows of the block, from its row `first`.
struct Panel {
  const Problem& p;
  const Block& block;
  int first, count;
  int64_t head(int r) const { return block.head[first + r]; }
  int64_t query(int r) const { return block.query[first + r]; }
};

// Keys [begin, end) of the tile hold all that the panel's rows keep; `full`: every row keeps all of them.
// keeps[r]: row r keeps a key. A bias of -inf may drop it later.
struct PanelCover {
  int begin, end;
  bool full;
  bool keeps[kBlockRows];
};

inline PanelCover cover_panel(const Panel& panel, int64_t first, int count) {
  PanelCover all;
  all.begin = count;
  all.end = 0;
  Cover one[kBlockRows];
  for (int r = 0; r < panel.count; ++r) {
    one[r] = cover(panel.p.mask, panel.head(r), panel.query(r), first, count);
    all.keeps[r] = one[r].begin < one[r].end;
    if (!all.keeps[r]) continue;
    if (one[r].begin < all.begin) all.begin = one[r].begin;
    if (one[r].end > all.end) all.end = one[r].end;
  }
  all.full = true;
  for (int r = 0; r < panel.count; ++r) {
    all.full = all.full && one[r].solid && one[r].begin == all.begin && one[r].end == all.end;
  }
  return all;
}

inline float choose(unsigned char first, float a, float b) {
  const uint32_t mask = 0u - first;
  return bit_cast<float>((bit_cast<uint32_t>(a) & mask) | (bit_cast<uint32_t>(b) & ~mask));
}
inline double choose(unsigned char first, double a, double b) {
  const uint64_t mask = uint64_t(0) - first;
  return bit_cast<double>((bit_cast<uint64_t>(a) & mask) | (bit_cast<uint64_t>(b) & ~mask));
}

// Writes `with` over the pairs that the mask drops: a select, so that what stood there (a NaN too) is never
// computed with.
template <class N>
inline void drop(const Panel& panel, int64_t first, int begin, int end, typename N::T with, int (*runs)[2],
                 typename N::T* tile) {
  const Mask& mask = panel.p.mask;
  unsigned char kept[kMaxTile];
  for (int r = 0; r < panel.count; ++r) {
    if (!has_spans(mask)) {
      flags(mask, panel.head(r), panel.query(r), first, begin, end, kept);
      // Bits are chosen, not branched upon: flags of no pattern are not to be guessed.
      for (int j = begin; j < end; ++j) {
        typename N::T* const at = tile + ptrdiff_t(j) * Scratch<N>::kPanel + r;
        *at = choose(kept[j - begin], *at, with);
      }
      continue;
    }
    const int n = dropped(mask, panel.head(r), panel.query(r), first, begin, end, runs);
    for (int i = 0; i < n; ++i) {
      for (int j = runs[i][0]; j < runs[i][1]; ++j) tile[ptrdiff_t(j) * Scratch<N>::kPanel + r] = with;
    }
  }
}
