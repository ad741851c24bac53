// SPDX-License-Identifier: Apache-2.0
// Each piece of the kernel against a formula of a few lines; included once per target, after kernel.inl.

namespace regard {
namespace REGARD_TARGET {
namespace {

// Deterministic and without <random>: a target object shares no inline code.
struct Noise {
  uint32_t state = 12345;
  float operator()() {
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(static_cast<int32_t>(state)) * 0x1p-30f;  // in [-2, 2)
  }
};

typedef F32::V V;
constexpr int kLanes = F32::kLanes;
constexpr int kPanel = Scratch<F32>::kPanel;

inline uint32_t bits_of(float x) {
  uint32_t b;
  memcpy(&b, &x, sizeof b);
  return b;
}

inline float first_lane(V x) {
  float all[kLanes];
  F32::store(all, x);
  return all[0];
}

void test_operations() {
  const float inf = __builtin_inff(), nan = __builtin_nanf("");
  const float values[] = {0.0f, -0.0f, 1.0f, -1.5f, 3e38f, 1e-40f, inf, -inf, nan, 2.5f, 3.5f, -0.5f};
  for (float a : values) {
    for (float b : values) {
      const V va = F32::set(a), vb = F32::set(b);
      const auto same = [](float got, float want) { return (got != got && want != want) || got == want; };
      CHECK(same(first_lane(F32::add(va, vb)), a + b), "%g + %g", a, b);
      CHECK(same(first_lane(F32::sub(va, vb)), a - b), "%g - %g", a, b);
      CHECK(same(first_lane(F32::mul(va, vb)), a * b), "%g * %g", a, b);
      CHECK(same(first_lane(F32::div(va, vb)), a / b), "%g / %g", a, b);
      CHECK(bits_of(first_lane(F32::max(va, vb))) == bits_of(a > b ? a : b), "max(%g, %g)", a, b);
      CHECK(same(first_lane(F32::select_less(va, vb, F32::set(1), F32::set(2))), a < b ? 1.0f : 2.0f), "%g < %g", a, b);
    }
    CHECK(bits_of(first_lane(F32::round(F32::set(a)))) == bits_of(::rintf(a)) || a != a, "round(%g)", a);
  }
  for (int n = -126; n <= 127; ++n) {
    CHECK(first_lane(F32::scale2(F32::set(1.5f), F32::set(float(n)))) == ::ldexpf(1.5f, n), "2^%d", n);
  }
  CHECK(first_lane(F32::scale2(F32::set(nan), F32::set(nan))) != first_lane(F32::set(nan)), "NaN stays NaN");
}

void test_exp() {
  CHECK(first_lane(exp<F32>(F32::set(0))) == 1, "exp(0) is exactly 1");
  CHECK(bits_of(first_lane(exp<F32>(F32::set(-__builtin_inff())))) == 0, "exp(-inf) is exactly +0");
  CHECK(bits_of(first_lane(exp<F32>(F32::set(-87.5f)))) == 0, "flushed");
  CHECK(bits_of(first_lane(exp<F32>(F32::set(-3e38f)))) == 0, "flushed");
  const float nan = first_lane(exp<F32>(F32::set(__builtin_nanf(""))));
  CHECK(nan != nan, "exp(NaN) is NaN");
  double worst = 0;
  float last = 0;
  for (uint32_t b = bits_of(-87.0f); b > 0x80000000u; b -= b > 1009 + 0x80000000u ? 1009 : b - 0x80000000u) {
    float x;
    memcpy(&x, &b, sizeof x);
    const float got = first_lane(exp<F32>(F32::set(x)));
    const double want = ::exp(static_cast<double>(x));
    const double ulp = ::ldexp(1.0, ::ilogb(want) - 23);
    const double error = ::fabs(got - want) / ulp;
    worst = error > worst ? error : worst;
    CHECK(got >= last, "exp(%.9g) = %.9g falls below %.9g", x, got, last);
    last = got;
  }
  CHECK(worst <= 1.5, "exp is off by %.3f ulp", worst);
}

template <int C>
void test_product_of() {
  Noise noise;
  const int sizes[] = {1, 2, 5, 6, 7, 12, 13}, depths[] = {0, 1, 2, 3, 17, 39};
  static float a[16 * 40], b[40 * kPanel], got[16 * kPanel];
  for (float& x : a) x = noise();
  for (float& x : b) x = noise();
  for (int rows : sizes) {
    for (int n : depths) {
      product<F32, C>(a, 40, 1, b, rows, n,
                      [&](int r, int c, V sum) { F32::store(got + r * kPanel + c * kLanes, sum); });
      for (int r = 0; r < rows; ++r) {
        for (int l = 0; l < C * kLanes; ++l) {
          double want = 0, size = 1e-30;
          for (int k = 0; k < n; ++k) {
            want += double(a[r * 40 + k]) * b[k * kPanel + l];
            size += ::fabs(double(a[r * 40 + k]) * b[k * kPanel + l]);
          }
          const double error = ::fabs(got[r * kPanel + l] - want);
          CHECK(error <= n * 0x1p-23 * size, "rows %d, n %d, (%d, %d): %g", rows, n, r, l, error);
        }
      }
    }
  }
  if constexpr (C > 1) test_product_of<C - 1>();
}

void test_fold_matches_two_passes() {
  Noise noise;
  constexpr int kKeys = 50;
  static float s[2][kKeys * kPanel];
  float max[kPanel], sum[kPanel], shrink[kPanel];
  for (auto& tile : s) {
    for (float& x : tile) x = 10 * noise();
  }
  for (int j = 0; j < kKeys; ++j) s[0][j * kPanel] = -__builtin_inff();  // a lane that keeps nothing at first
  static float raw[2][kKeys * kPanel];
  memcpy(raw, s, sizeof s);
  for (int l = 0; l < kPanel; ++l) {
    max[l] = -__builtin_inff();
    sum[l] = 0;
  }
  fold<F32, F32::kCols>(0, kKeys, s[0], max, sum, shrink);
  CHECK(max[0] == -__builtin_inff() && sum[0] == 0 && shrink[0] == 0 && s[0][0] == 0, "nothing kept: %g", sum[0]);
  fold<F32, F32::kCols>(0, kKeys, s[1], max, sum, shrink);
  for (int l = 0; l < kPanel; ++l) {
    double peak = -1e30, total = 0;
    for (const auto& tile : raw) {
      for (int j = 0; j < kKeys; ++j) peak = tile[j * kPanel + l] > peak ? tile[j * kPanel + l] : peak;
    }
    for (const auto& tile : raw) {
      for (int j = 0; j < kKeys; ++j) total += ::exp(tile[j * kPanel + l] - peak);
    }
    CHECK(max[l] == float(peak), "lane %d: max %g, want %g", l, max[l], peak);
    CHECK(::fabs(sum[l] - total) <= 1e-5 * total, "lane %d: sum %g, want %g", l, sum[l], total);
  }
}

}  // namespace

void test_pieces() {
  test_operations();
  test_exp();
  test_product_of<F32::kCols>();
  test_fold_matches_two_passes();
}

}  // namespace REGARD_TARGET
}  // namespace regard
