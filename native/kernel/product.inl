// SPDX-License-Identifier: Apache-2.0
// The register tile that both products of attention are made of.

// c[r][lane] = sum over k of a[r][k] * b[k][lane], for R rows and C columns of vectors: one chain per element, k
// ascending from zero. a[r][k] is at a + r * a_row + k * a_step; b's rows are a panel apart. done(r, c, sum)
// receives each column of vectors.
template <class N, int R, int C, class Done>
inline void product_tile(const typename N::T* a, ptrdiff_t a_row, ptrdiff_t a_step, const typename N::T* b, int n,
                         Done done) {
  typedef typename N::V V;
  V acc[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) acc[r][c] = N::set(0);
  }
#pragma GCC unroll 2
  for (int k = 0; k < n; ++k) {
    V col[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) col[c] = N::load(b + c * N::kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V x = N::set(a[r * a_row]);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) acc[r][c] = N::fma(x, col[c], acc[r][c]);
    }
    a += a_step;
    b += Scratch<N>::kPanel;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) done(r, c, acc[r][c]);
  }
}

// The same for any number of rows: whole register tiles, then one smaller. done(r, c, sum) sees r in [0, rows).
template <class N, int C, class Done>
inline void product(const typename N::T* a, ptrdiff_t a_row, ptrdiff_t a_step, const typename N::T* b, int rows, int n,
                    Done done) {
  int r0 = 0;
  const auto shifted = [&](int r, int c, typename N::V x) { done(r0 + r, c, x); };
  for (; r0 + N::kRows <= rows; r0 += N::kRows) {
    product_tile<N, N::kRows, C>(a + r0 * a_row, a_row, a_step, b, n, shifted);
  }
  static_assert(N::kRows <= 6, "every remainder has its case");
  switch (rows - r0) {
    case 1:
      return product_tile<N, 1, C>(a + r0 * a_row, a_row, a_step, b, n, shifted);
    case 2:
      return product_tile<N, 2, C>(a + r0 * a_row, a_row, a_step, b, n, shifted);
    case 3:
      return product_tile<N, 3, C>(a + r0 * a_row, a_row, a_step, b, n, shifted);
    case 4:
      return product_tile<N, 4, C>(a + r0 * a_row, a_row, a_step, b, n, shifted);
    case 5:
      return product_tile<N, 5, C>(a + r0 * a_row, a_row, a_step, b, n, shifted);
  }
}
