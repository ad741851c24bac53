// SPDX-License-Identifier: Apache-2.0
// Each piece of the kernel against a formula of a few lines; included once per target, after kernel.inl.
#include "noise.inl"
#include "groups_test.inl"

namespace regard {
namespace REGARD_TARGET {
namespace {

template <class N>
inline typename N::T first_lane(typename N::V x) {
  typename N::T all[N::kLanes];
  N::store(all, x);
  return all[0];
}

template <class T>
inline bool same(T got, T want) {
  return (got != got && want != want) || got == want;
}

template <class N>
void test_operations() {
  typedef typename N::T T;
  const T inf = __builtin_inff(), nan = __builtin_nanf("");
  const T values[] = {0, T(-0.0), 1, -1.5, T(3e38), T(1e-40), inf, -inf, nan, 2.5, 3.5, -0.5};
  for (T a : values) {
    for (T b : values) {
      const typename N::V va = N::set(a), vb = N::set(b);
      CHECK(same(first_lane<N>(N::add(va, vb)), a + b), "%g + %g", a, b);
      CHECK(same(first_lane<N>(N::sub(va, vb)), a - b), "%g - %g", a, b);
      CHECK(same(first_lane<N>(N::mul(va, vb)), a * b), "%g * %g", a, b);
      CHECK(same(first_lane<N>(N::div(va, vb)), a / b), "%g / %g", a, b);
      CHECK(same(first_lane<N>(N::max(va, vb)), a > b ? a : b), "max(%g, %g)", a, b);
      CHECK(first_lane<N>(N::select_less(va, vb, N::set(1), N::set(2))) == (a < b ? 1 : 2), "%g < %g", a, b);
      CHECK(same(first_lane<N>(N::zero_less(va, vb, N::set(a))), a < b ? 0 : a), "0 if %g < %g", a, b);
    }
  }
  const int most = sizeof(T) == 4 ? 127 : 1023;
  for (int n = 1 - most; n <= most; ++n) {
    const T factors[] = {T(0.25), T(1)};
    for (T by : factors) {
      const typename N::V power = N::power(N::set(n), by);
      const T near = first_lane<N>(N::number(power));  // ties go either way
      CHECK(near == ::rint(near) && ::fabs(near - n * by) <= 0.5, "%g is rounded to %g", n * by, near);
      CHECK(first_lane<N>(N::scale2(N::set(1.5), power)) == T(::ldexp(1.5, static_cast<int>(near))), "2^%g", near);
    }
  }
  const T kept = first_lane<N>(N::scale2(N::set(nan), N::power(N::set(nan), 1)));
  CHECK(kept != kept, "NaN stays NaN");
  // (1 + u)(1 - u) - 1 = -u^2 with one rounding, 0 with two.
  volatile T unit = sizeof(T) == 4 ? T(0x1p-23) : T(0x1p-52);  // unknown to the compiler, which would fold all of it
  const T u = unit;
  const T product = first_lane<N>(N::fma(N::set(1 + u), N::set(1 - u), N::set(-1)));
  CHECK(product == (N::kLanes > 1 ? -u * u : 0), "fma rounds once but for scalar: %g", product);
  T lanes[N::kLanes];
  for (int l = 0; l < N::kLanes; ++l) lanes[l] = T(l);
  T twice[N::kLanes];
  N::store(twice, N::add(N::load(lanes), N::load(lanes)));
  for (int l = 0; l < N::kLanes; ++l) CHECK(twice[l] == 2 * T(l), "lane %d", l);
}

template <class N>
void test_bits() {
  typedef typename N::T T;
  uint32_t words[N::kLanes];
  for (int l = 0; l < N::kLanes; ++l) words[l] = 0x9e3779b9u * static_cast<uint32_t>(l + 1);
  const int starts[] = {0, 1, 7, 31};
  for (int start : starts) {
    typename N::Bits bits = N::shift(N::bits(words), start);
    for (int b = 31 - start; b >= 0; --b, bits = N::next(bits)) {
      T lanes[N::kLanes];
      N::store(lanes, N::select_top(bits, N::set(1), N::set(-1)));
      for (int l = 0; l < N::kLanes; ++l) CHECK((lanes[l] > 0) == (words[l] >> b & 1), "lane %d bit %d", l, b);
    }
  }
}

template <class N, int C, class Stored>
void test_load_columns(const Stored* rows, int row, typename N::V (&x)[C]) {
  typedef typename N::T T;
  N::load_columns(rows + 2, row, x);
  for (int c = 0; c < C; ++c) {
    T lanes[N::kLanes];
    N::store(lanes, x[c]);
    for (int l = 0; l < N::kLanes; ++l) CHECK(lanes[l] == T(l * row + 2 + c), "row %d column %d: %g", l, c, lanes[l]);
  }
}

template <class N, class Stored>
void test_columns() {
  typedef typename N::T T;
  constexpr int kRow = 11;
  Stored rows[N::kLanes * kRow];
  for (int i = 0; i < N::kLanes * kRow; ++i) narrow(T(i), rows[i]);
  typename N::V x[4], more[kTurn<N, Stored>];
  test_load_columns<N>(rows, kRow, x);
  test_load_columns<N>(rows, kRow, more);
  T back[N::kLanes * kRow] = {};
  N::store_columns(x, back + 2, kRow);
  for (int i = 0; i < N::kLanes * kRow; ++i) {
    const T want = i % kRow >= 2 && i % kRow < 6 ? T(i) : T(0);
    CHECK(back[i] == want, "element %d: %g, want %g", i, back[i], want);
  }
}

// Powers of two, of which every sum is exact.
template <class N>
void test_sums() {
  typename N::T lanes[N::kLanes], got[N::kLanes];
  typename N::V x[N::kLanes];
  for (int v = 0; v < N::kLanes; ++v) {
    for (int l = 0; l < N::kLanes; ++l) lanes[l] = typename N::T(1 << (l + v) % 20);
    x[v] = N::load(lanes);
  }
  N::store(got, N::sums(x));
  for (int v = 0; v < N::kLanes; ++v) {
    typename N::T want = 0;
    for (int l = 0; l < N::kLanes; ++l) want += typename N::T(1 << (l + v) % 20);
    CHECK(got[v] == want, "sum %d is %g, not %g", v, got[v], want);
  }
}

// In units of the last place of `want`.
template <class T>
inline double ulps(T got, long double want) {
  const int digits = sizeof(T) == 4 ? 23 : 52;
  return static_cast<double>(::fabsl(got - want) / ::ldexpl(1, ::ilogbl(want) - digits));
}

template <class N>
void test_exp() {
  typedef typename N::T T;
  const T lowest = Exp<T>::kLowest;
  CHECK(first_lane<N>(exp<N>(N::set(0))) == 1, "exp(0) is exactly 1");
  const T flushed[] = {-__builtin_inff(), T(-3e38), lowest - T(0.5)};
  for (T x : flushed) {
    const T y = first_lane<N>(exp<N>(N::set(x)));
    CHECK(y == 0 && 1 / y > 0, "exp(%g) is exactly +0, not %g", x, y);
  }
  const T nan = first_lane<N>(exp<N>(N::set(__builtin_nanf(""))));
  CHECK(nan != nan, "exp(NaN) is NaN");
  double worst = 0;
  T last = 0;
  for (T x = lowest, step = 0; x < 0; x += step) {
    step = -x * T(2.9e-5);
    const T got = first_lane<N>(exp<N>(N::set(x)));
    const double error = ulps(got, ::expl(x));
    worst = error > worst ? error : worst;
    CHECK(got >= last, "exp(%.17g) = %.17g falls below %.17g", x, got, last);
    last = got;
    if (-x < T(1e-9)) break;
  }
  CHECK(worst <= 1.5, "exp is off by %.3f ulp", worst);
}

// n is near s x log2 e, and 2^(n/s) the nearest number, for all n that occur; s powers are in the table.
template <class N>
void test_powers() {
  constexpr int kSteps = N::kPowers;
  const typename N::Powers power;
  for (int n = -125 * kSteps; n <= 0; ++n) {
    const float x = static_cast<float>(n * (0.6931471805599453 / kSteps));
    const typename N::V at = power.near(N::set(x));
    CHECK(first_lane<N>(power.number(at)) == n, "%g is %d steps of %d", x, n, kSteps);
    const float want = static_cast<float>(::exp2l(static_cast<long double>(n) / kSteps)),
                got = first_lane<N>(power.of(at));
    CHECK(got == want, "2^(%d / %d) is %.9g, not %.9g", n, kSteps, want, got);
  }
}

template <class N>
void test_tanh() {
  typedef typename N::T T;
  double worst = 0;
  for (T x = T(1e-6); x < 100; x *= T(1.0003)) {
    const T got = first_lane<N>(tanh<N>(N::set(x)));
    const double error = ulps(got, ::tanhl(x));
    worst = error > worst ? error : worst;
    CHECK(first_lane<N>(tanh<N>(N::set(-x))) == -got, "tanh is odd at %g", x);
  }
  CHECK(worst <= 4, "tanh is off by %.3f ulp", worst);
  CHECK(first_lane<N>(tanh<N>(N::set(0))) == 0, "tanh(0)");
  CHECK(first_lane<N>(tanh<N>(N::set(__builtin_inff()))) == 1, "tanh(inf)");
  CHECK(first_lane<N>(tanh<N>(N::set(-__builtin_inff()))) == -1, "tanh(-inf)");
  const T nan = first_lane<N>(tanh<N>(N::set(__builtin_nanf(""))));
  CHECK(nan != nan, "tanh(NaN) is NaN");
}

// Each 16-bit pattern: vector and scalar widen alike, and narrowing comes back.
template <class Stored>
void test_widen() {
  Stored all[F32::kLanes];
  float lanes[F32::kLanes];
  for (uint32_t bits = 0; bits < 65536; bits += F32::kLanes) {
    for (int l = 0; l < F32::kLanes; ++l) all[l].bits = static_cast<uint16_t>(bits + l);
    F32::store(lanes, F32::load(all));
    for (int l = 0; l < F32::kLanes; ++l) {
      const float one = widen(all[l]);
      CHECK(same(lanes[l], one), "%04x: %g and %g", all[l].bits, lanes[l], one);
      Stored back;
      narrow(one, back);
      CHECK(back.bits == all[l].bits || one != one, "%04x came back as %04x", all[l].bits, back.bits);
    }
  }
}

template <class N, int C>
void test_product() {
  typedef typename N::T T;
  constexpr int kPanel = Scratch<N>::kPanel;
  Noise noise;
  const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 12, 13, 23, 24, 25, 41}, depths[] = {0, 1, 2, 3, 17, 39};
  static T a[41 * 40], b[40 * kPanel], got[41 * kPanel];
  for (T& x : a) x = noise();
  for (T& x : b) x = noise();
  for (int rows : sizes) {
    for (int n : depths) {
      product<N, C>(
          Left<T>{a, 40, 1}, Right<T>{b, kPanel}, rows, n,
          [&](int r, int c, typename N::V sum) { N::store(got + r * kPanel + c * N::kLanes, sum); },
          [](int) { return Alone::Lines{}; });
      for (int r = 0; r < rows; ++r) {
        for (int l = 0; l < C * N::kLanes; ++l) {
          long double want = 0, size = 1e-30L;
          for (int k = 0; k < n; ++k) {
            const long double term = static_cast<long double>(a[r * 40 + k]) * b[k * kPanel + l];
            want += term;
            size += ::fabsl(term);
          }
          const long double unit = sizeof(T) == 4 ? 0x1p-23L : 0x1p-52L;
          CHECK(::fabsl(got[r * kPanel + l] - want) <= n * unit * size, "rows %d, n %d, (%d, %d)", rows, n, r, l);
        }
      }
    }
  }
  if constexpr (C > 1) test_product<N, C - 1>();
}

// Keys in the lanes or queries in the lanes: the same scores bit for bit, whatever the element type.
template <class N, class Row, int R>
void test_few_scores() {
  typedef typename N::T T;
  constexpr int kPanel = Scratch<N>::kPanel, kKeys = 77;
  if constexpr (N::kLanes > 1 && N::kLanes >= R) {  // the rows are those of one vector
    const int depths[] = {1, 3, 4, 8, 13, 30};
    for (int d : depths) {
      Noise noise;
      static Row key[kKeys * 33];
      static T query[32 * kPanel], want[kKeys * kPanel], got[kKeys * kPanel];
      for (Row& x : key) narrow(T(noise()), x);
      for (T& x : query) x = noise();
      T scale[N::kLanes];
      for (T& x : scale) x = T(0.3);
      const Rows<Row> rows{key, 33};
      const int64_t head = 0;
      const Input in{reinterpret_cast<const char*>(key), &head, 33 * sizeof(Row), sizeof(Row)};
      scores<N, 1>(rows, 5, kKeys, query, d, scale, want, Alone{});
      few_scores<N, R>(rows, 5, kKeys, query, d, scale, got, Ahead(in, in, 0, 0, d, d));
      for (int j = 5; j < kKeys; ++j) {
        for (int r = 0; r < R; ++r) {
          CHECK(got[j * kPanel + r] == want[j * kPanel + r], "d %d key %d row %d of %d", d, j, r, R);
        }
      }
    }
  }
}

// Merging what two halves of the keys left is folding all of them, to rounding: 1.5 units of the last place of each
// exponential, and one of a product and a sum. An empty half changes no bit.
template <class N>
void test_merge() {
  typedef typename N::T T;
  constexpr int kRows = 5, kWidth = 3;
  static char memory[1 << 20], other[1 << 12];
  char* const base = memory + (64 - reinterpret_cast<uintptr_t>(memory) % 64);
  Scratch<N> s(96, 8, kWidth, base);
  Cutter cut{other + (64 - reinterpret_cast<uintptr_t>(other) % 64)};
  const State<N> none(cut, kRows, kWidth);
  const int width = padded<N>(kWidth);
  clear(s.total, kRows, kWidth);
  clear(s.part, kRows, kWidth);
  clear(none, kRows, kWidth);
  for (int r = 0; r < kRows; ++r) {
    s.total.max[r] = T(r), s.part.max[r] = T(2), s.total.sum[r] = T(1.25), s.part.sum[r] = T(3), s.part.seen[r] = true;
    s.total.out[r * width] = T(0.5), s.part.out[r * width] = T(r) + T(0.1);
  }
  merge(s.total, s.part, kRows, kWidth, s);
  for (int r = 0; r < kRows; ++r) {
    const long double peak = r > 2 ? r : 2, shrink = ::expl(r - peak), grow = ::expl(2 - peak);
    const long double sum = 1.25L * shrink + 3 * grow, out = 0.5L * shrink + (T(r) + T(0.1)) * grow;
    const double sum_off = ulps(s.total.sum[r], sum), out_off = ulps(s.total.out[r * width], out);
    CHECK(s.total.max[r] == T(peak) && s.total.seen[r], "row %d: max %g", r, s.total.max[r]);
    CHECK(sum_off <= 4, "row %d: the sum %g is off by %.3f ulp", r, s.total.sum[r], sum_off);
    CHECK(out_off <= 4, "row %d: the output %g is off by %.3f ulp", r, s.total.out[r * width], out_off);
  }
  T before[kRows];
  for (int r = 0; r < kRows; ++r) before[r] = s.total.out[r * width];
  merge(s.total, none, kRows, kWidth, s);
  merge(none, s.total, kRows, kWidth, s);
  for (int r = 0; r < kRows; ++r) {
    CHECK(s.total.out[r * width] == before[r] && none.out[r * width] == before[r], "row %d: nothing was joined", r);
    CHECK(none.sum[r] == s.total.sum[r] && none.max[r] == s.total.max[r] && none.seen[r], "row %d: nothing joined", r);
  }
}

template <class N>
void test_fold_matches_two_passes() {
  typedef typename N::T T;
  constexpr int kPanel = Scratch<N>::kPanel, kKeys = 50;
  Noise noise;
  static T s[2][kKeys * kPanel], raw[2][kKeys * kPanel];
  T max[kPanel], sum[kPanel], shrink[kPanel];
  for (auto& tile : s) {
    for (T& x : tile) x = 10 * noise();
  }
  for (int j = 0; j < kKeys; ++j) s[0][j * kPanel] = -__builtin_inff();  // a lane that keeps nothing at first
  memcpy(raw, s, sizeof s);
  for (int l = 0; l < kPanel; ++l) {
    max[l] = -__builtin_inff();
    sum[l] = 0;
  }
  fold<N, N::kCols>(0, kKeys, kPanel, s[0], max, sum, shrink);
  CHECK(max[0] == -__builtin_inff() && sum[0] == 0 && shrink[0] == 0 && s[0][0] == 0, "nothing kept: %g", sum[0]);
  fold<N, N::kCols>(0, kKeys, kPanel, s[1], max, sum, shrink);
  for (int l = 0; l < kPanel; ++l) {
    double peak = -1e30, total = 0;
    for (const auto& tile : raw) {
      for (int j = 0; j < kKeys; ++j) peak = tile[j * kPanel + l] > peak ? tile[j * kPanel + l] : peak;
    }
    for (const auto& tile : raw) {
      for (int j = 0; j < kKeys; ++j) total += ::exp(tile[j * kPanel + l] - peak);
    }
    CHECK(max[l] == T(peak), "lane %d: max %g, want %g", l, max[l], peak);
    CHECK(::fabs(sum[l] - total) <= (sizeof(T) == 4 ? 1e-5 : 1e-13) * total, "lane %d: %g, want %g", l, sum[l], total);
  }
}

// Keys in the lanes or queries in the lanes: the same weights and sums bit for bit.
template <class N>
void test_fold_of_few_rows() {
  typedef typename N::T T;
  constexpr int kPanel = Scratch<N>::kPanel, kKeys = 77;
  for (int rows = 1; rows <= kFew<N> && rows < N::kLanes; ++rows) {
    Noise noise;
    static T few[kKeys * kPanel], all[kKeys * kPanel];
    T max[2][kPanel], sum[2][kPanel], shrink[2][kPanel];
    for (int i = 0; i < kKeys * kPanel; ++i) few[i] = all[i] = 10 * noise();
    for (int l = 0; l < kPanel; ++l) max[0][l] = max[1][l] = T(l % 2), sum[0][l] = sum[1][l] = T(l);
    fold<N, 1>(5, kKeys, rows, few, max[0], sum[0], shrink[0]);
    fold<N, 1>(5, kKeys, N::kLanes, all, max[1], sum[1], shrink[1]);
    for (int r = 0; r < rows; ++r) {
      for (int j = 5; j < kKeys; ++j) {
        CHECK(few[j * kPanel + r] == all[j * kPanel + r], "key %d row %d of %d", j, r, rows);
      }
      CHECK(max[0][r] == max[1][r] && sum[0][r] == sum[1][r] && shrink[0][r] == shrink[1][r], "row %d of %d", r, rows);
    }
  }
}

template <class N>
void test_number() {
  test_operations<N>();
  test_bits<N>();
  test_columns<N, typename N::T>();
  test_few_scores<N, typename N::T, 1>();
  test_few_scores<N, typename N::T, 2>();
  test_few_scores<N, typename N::T, 3>();
  test_few_scores<N, typename N::T, 4>();
  test_few_scores<N, typename N::T, kFew<N>>();
  test_merge<N>();
  test_exp<N>();
  if constexpr (N::kPowers > 0) test_powers<N>();
  if constexpr (N::kAcross) test_sums<N>();
  test_tanh<N>();
  test_product<N, N::kCols>();
  test_fold_matches_two_passes<N>();
  test_fold_of_few_rows<N>();
}

}  // namespace

void test_pieces() {
  test_groups<F32, float>();
  test_groups<F32, Half>();
  test_groups<F32, BFloat16>();
  test_groups<F64, double>();
  test_number<F32>();
  test_number<F64>();
  test_columns<F32, Half>();
  test_columns<F32, BFloat16>();
  test_few_scores<F32, Half, 4>();
  test_few_scores<F32, BFloat16, 2>();
  test_few_scores<F32, Half, kFew<F32>>();
  test_few_scores<F32, BFloat16, kFew<F32>>();
  test_widen<Half>();
  test_widen<BFloat16>();
}

}  // namespace REGARD_TARGET
}  // namespace regard
