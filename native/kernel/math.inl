// SPDX-License-Identifier: Apache-2.0
// e^x for x <= 0, and tanh, on vectors.

// x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts of which the first times any n that occurs is exact (Cody &
// Waite 1980). e^r is a minimax polynomial with its first two terms held at 1. Below `lowest`, where the result
// leaves the normal numbers, e^x is exactly 0.
template <class T>
struct Exp;

template <>
struct Exp<float> {
  static constexpr float kLog2e = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f, kLowest = -87;
  static constexpr int kTerms = 5;  // relative error 3.1e-9
  static constexpr float kTerm[] = {0.49999994f, 0.16666521f, 0.041668277f, 0.008368687f, 0.0013819826f};
};

template <>
struct Exp<double> {
  static constexpr double kLog2e = 1.4426950408889634, kLn2High = 0.693145751953125, kLn2Low = 1.42860682030941723e-6,
                          kLowest = -708;
  static constexpr int kTerms = 10;  // relative error 3.7e-18
  static constexpr double kTerm[] = {0.5000000000000011,     0.16666666666666455,   0.04166666666652828,
                                     0.00833333333347529,    0.0013888888943900239, 0.00019841269538028598,
                                     2.4801492925763702e-05, 2.755756405984276e-06, 2.7630291361974276e-07,
                                     2.5005875897656658e-08};
};

// e^x = 2^n (1 + slope r), of K vectors in step: one alone waits for each of its results.
template <class N, int K>
struct Reduced {
  typename N::V power[K], r[K], slope[K];
};

template <class N, int K>
inline Reduced<N, K> reduce(const typename N::V (&x)[K]) {
  typedef typename N::V V;
  typedef Exp<typename N::T> E;
  Reduced<N, K> e;
#pragma GCC unroll 16
  for (int i = 0; i < K; ++i) e.power[i] = N::power(x[i], E::kLog2e);
#pragma GCC unroll 16
  for (int i = 0; i < K; ++i) {
    const V n = N::number(e.power[i]);
    e.r[i] = N::fma(n, N::set(-E::kLn2Low), N::fma(n, N::set(-E::kLn2High), x[i]));
    e.slope[i] = N::set(E::kTerm[E::kTerms - 1]);
  }
#pragma GCC unroll 16
  for (int term = E::kTerms - 2; term >= -1; --term) {
    const V next = N::set(term < 0 ? 1 : E::kTerm[term]);
#pragma GCC unroll 16
    for (int i = 0; i < K; ++i) e.slope[i] = N::fma(e.slope[i], e.r[i], next);
  }
  return e;
}

// Where s powers 2^(j/s) lie in a register: x = n (ln 2) / s + r, |r| <= ln 2 / 2s, and two terms are enough, with a
// relative error of 1.6e-9 for 16 powers and 2.6e-8 for 8. A fifth of the softmax less with 16, a tenth with 8
// (experiments/0016, 0019).
template <class N, int K>
inline void exp_by_table(typename N::V (&x)[K]) {
  typedef typename N::V V;
  typedef Exp<typename N::T> E;
  const typename N::Powers power;
  static constexpr typename N::T kHigh = -E::kLn2High / N::kPowers, kLow = -E::kLn2Low / N::kPowers, kThird = 1 / 6.f;
  const V high = N::constant(kHigh), low = N::constant(kLow);
  const V second = N::constant(N::Powers::kSecond), third = N::constant(kThird), lowest = N::constant(E::kLowest);
  V at[K], r[K];
#pragma GCC unroll 16
  for (int i = 0; i < K; ++i) at[i] = power.near(x[i]);
#pragma GCC unroll 16
  for (int i = 0; i < K; ++i) {
    const V n = power.number(at[i]);
    r[i] = N::fma(n, low, N::fma(n, high, x[i]));
  }
#pragma GCC unroll 16
  for (int i = 0; i < K; ++i) {
    const V less = N::fma(N::fma(r[i], third, second), N::mul(r[i], r[i]), r[i]), power_of_two = power.of(at[i]);
    x[i] = N::zero_less(x[i], lowest, N::fma(power_of_two, less, power_of_two));
  }
}

// 1.5 ulp; exp(0) = 1 and exp(-inf) = 0 exactly; NaN stays NaN.
template <class N, int K>
inline void exp(typename N::V (&x)[K]) {
  typedef typename N::V V;
  if constexpr (N::kPowers > 0) return exp_by_table<N>(x);
  const Reduced<N, K> e = reduce<N, K>(x);
#pragma GCC unroll 16
  for (int i = 0; i < K; ++i) {
    const V y = N::scale2(N::fma(e.slope[i], e.r[i], N::set(1)), e.power[i]);
    x[i] = N::zero_less(x[i], N::set(Exp<typename N::T>::kLowest), y);
  }
}

template <class N>
inline typename N::V exp(typename N::V x) {
  typename N::V one[1] = {x};
  exp<N>(one);
  return one[0];
}

// tanh |x| = (1 - e^-2|x|) / (1 + e^-2|x|), the difference taken where it does not cancel: e^y - 1 is
// 2^n (slope r) + (2^n - 1).
template <class N>
inline typename N::V tanh(typename N::V x) {
  typedef typename N::V V;
  const V one = N::set(1), zero = N::set(0);
  const V y[1] = {N::mul(N::set(-2), N::max(x, N::sub(zero, x)))};
  const Reduced<N, 1> e = reduce<N, 1>(y);
  const V power = N::scale2(one, e.power[0]);
  V less = N::fma(power, N::mul(e.slope[0], e.r[0]), N::sub(power, one));
  less = N::select_less(y[0], N::set(Exp<typename N::T>::kLowest), N::set(-1), less);
  const V size = N::div(N::sub(zero, less), N::add(less, N::set(2)));
  return N::select_less(x, zero, N::sub(zero, size), size);
}
