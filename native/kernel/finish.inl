// SPDX-License-Identifier: Apache-2.0
// Divide once, write the row statistics, and give the empty row its rule.

// One bit pattern for every NaN and for zero, so that no row shows which road its neighbours made it take: adding
// an all-dropped tile turns -0 into +0, and the sign of a NaN tells the operation that made it.
template <class T>
inline T canonical(T x) {
  return x != x ? static_cast<T>(__builtin_nanf("")) : x + 0;
}

template <class T>
inline void write_stat(T* stat, int64_t at, T value) {
  if (stat) stat[at] = canonical(value);
}

// `seen` tells, from the mask alone, whether the row keeps any key: a score of -inf or NaN is not an absent key.
template <class N>
void finish(const Problem& p, const Block& block, const Scratch<N>& s, const bool* seen) {
  typedef typename N::T T;
  constexpr int kPanel = Scratch<N>::kPanel;
  for (int r = 0; r < block.rows; ++r) {
    const T* lane = s.out + ptrdiff_t(r / kPanel) * p.dv * kPanel + r % kPanel;
    char* row = p.out.data + p.out.head[block.head[r]] + block.query[r] * p.out.row;
    for (int c = 0; c < p.dv; ++c) {
      const T x = seen[r] ? canonical(lane[c * kPanel] / s.sum[r]) : T(0);
      memcpy(row + c * p.out.col, &x, sizeof x);
    }
    const int64_t at = block.head[r] * p.queries + block.query[r];
    write_stat(p.stats.max, at, s.max[r]);
    write_stat(p.stats.sum, at, s.sum[r]);
    write_stat(p.stats.lse, at, static_cast<T>(s.max[r] + ::log(static_cast<double>(s.sum[r]))));
  }
}
