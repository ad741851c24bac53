// SPDX-License-Identifier: Apache-2.0
// Elements out of the range of a unit for bfloat16 are computed apart, by FMA, and no row sees that another one's were.
// Such a unit takes what is below 2^-126 for zero, in its factors and in each of its sums.

// Scores: those of a row of q, and by tiles of k, that has an element over 2^58 or not finite. Of the others what is
// taken for zero is under 2^-66 d of q . k: under 2^-30 of a score if |scale| d is at most 2^36, and 1 ulp of its
// exponential is 2^-24. Under a larger scale all are computed apart. A tile has no more room at the top than a float,
// and its pieces may round up to Inf: of what it takes the products of up to 2^11 columns are below 2^127.
constexpr float kMostFactor = 0x1p58f;
constexpr double kMostScale = 0x1p36;

inline bool fits_scores(float x) { return __builtin_fabsf(x) <= kMostFactor; }
inline bool fits_scale(const Problem& p) { return __builtin_fabs(p.scale) * p.d <= kMostScale; }

// Values: a tile's 96, times weights of at most 1, are below 2^127. Their pieces are all normal numbers; a weight's are
// down to 2^-102, and what a smaller weight loses is what exp flushes. Of a product under 2^-126 all is lost, which is
// below the last place of a column where a weight of 1 meets a value; of another column, under 2^-123 for each key.
constexpr float kMostValue = 0x1p120f, kLeastValue = 0x1p-80f;

inline bool fits_product(float x) {
  const float size = __builtin_fabsf(x);
  return ((size <= kMostValue) & (size >= kLeastValue)) | (size == 0);
}

// The values out of range, and 0 for the others. One that is not finite is in neither: returns whether there is one.
template <class N, class Row>
bool set_values_apart(const Rows<Row>& from, int count, int dv, float* to) {
  const int width = padded<N>(dv);
  int odd = 0;
  for (int j = 0; j < count; ++j, to += width) {
    const Row* const row = from.at(j);
    for (int c = 0; c < dv; ++c) {
      const float x = widen(row[c]);
      const bool finite = x - x == 0;
      odd |= !finite;
      to[c] = (fits_product(x) | !finite) ? 0.0f : x;
    }
    for (int c = dv; c < width; ++c) to[c] = 0;
  }
  return odd;
}

// Which rows of q and k are in range, and the scores of the others.
template <class N>
struct Apart {
  static constexpr int kPanel = N::kLanes * N::kCols, kRows = (N::kBlock + kPanel - 1) / kPanel * kPanel;
  float* again;      // [key][lane]
  bool* query_fits;  // [row]
  bool* key_fits;    // [key]

  Apart(Cutter& cut, int tile) {
    cut(again, size_t(tile) * kPanel);
    cut(query_fits, kRows);
    cut(key_fits, size_t(tile));
  }

  template <int C, class Row>
  void score(const Panel& panel, const Rows<Row>& from, int begin, int end, const float* queries, const float* scale,
             float* to) {
    bool fit = true;
    for (int r = 0; r < panel.count; ++r) fit &= query_fits[panel.first + r];
    for (int j = begin; j < end; ++j) fit &= key_fits[j];
    if (fit) return;
    scores<N, C>(from, begin, end, queries, panel.p.d, scale, again, Alone{});
    for (int j = begin; j < end; ++j) {
      for (int r = 0; r < panel.count; ++r) {
        const ptrdiff_t at = ptrdiff_t(j) * kPanel + r;
        if (!key_fits[j] || !query_fits[panel.first + r]) to[at] = again[at];
      }
    }
  }
};
