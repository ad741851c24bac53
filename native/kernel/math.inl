// SPDX-License-Identifier: Apache-2.0
// e^x for x <= 0, on vectors.

// x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts whose first times any |n| < 2^15 is exact (Cody & Waite
// 1980). The polynomial is the degree-6 minimax of e^r with its first two terms held at 1, so that exp(0) = 1
// exactly; its relative error is 3.1e-9. Below -87, where the result leaves the normal numbers, it is exactly 0;
// exp(-inf) with it. Error: 1 ulp (tests/native).
template <class N>
typename N::V exp(typename N::V x) {
  typedef typename N::V V;
  const V n = N::round(N::mul(x, N::set(1.44269504f)));
  V r = N::fma(n, N::set(-0.693359375f), x);
  r = N::fma(n, N::set(2.12194440e-4f), r);
  V y = N::set(0.0013819826f);
  y = N::fma(y, r, N::set(0.008368687f));
  y = N::fma(y, r, N::set(0.041668277f));
  y = N::fma(y, r, N::set(0.16666521f));
  y = N::fma(y, r, N::set(0.49999994f));
  y = N::fma(y, r, N::set(1.0f));
  y = N::fma(y, r, N::set(1.0f));
  return N::select_less(x, N::set(-87.0f), N::set(0.0f), N::scale2(y, n));
}
