// SPDX-License-Identifier: Apache-2.0
// Numbers near the ends of float32's range, through a target that computes in smaller pieces: no worse than the target
// whose vectors it has, and no row sees what another one holds.
#include <math.h>
#include <string.h>

#include <random>
#include <vector>

#include "attend.h"
#include "check.h"

namespace regard {
namespace {

constexpr int kQueries = 37, kKeys = 210, kD = 64, kDv = 40;

struct Wide {
  typedef float Stored;
  static constexpr int kEngine = 0;
  static constexpr const char* kName = "float32";
  // How far two roads to one output may be apart, beside the sizes of what it adds: sums of 96 terms are random walks
  // of at most 10 units. And the unit of its own rounding.
  static constexpr double kApart = 16 * 0x1p-24, kUnit = 0x1p-24;
  static float encode(float x) { return x; }
  static float decode(float x) { return x; }
};
struct Brief {  // bfloat16, cut off
  typedef uint16_t Stored;
  static constexpr int kEngine = 3;
  static constexpr const char* kName = "bfloat16";
  static constexpr double kApart = 0x1p-8, kUnit = 0x1p-8;  // one road rounds its weights
  static uint16_t encode(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return static_cast<uint16_t>(bits >> 16);
  }
  static float decode(uint16_t x) {
    const uint32_t bits = static_cast<uint32_t>(x) << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
  }
};

// Row i of q, k or v, and column c of it, times a factor.
struct Scales {
  const char* name;
  double (*query)(int i, int c);
  double (*key)(int j, int c);
  double (*value)(int j, int c);
};
double one(int, int) { return 1; }
double by_row(int i, int) { return ::pow(10, i % 41 - 20); }
double by_column(int, int c) { return ::pow(10, c % 41 - 20); }

const Scales kScales[] = {
    {"plain", one, one, one},
    {"rows of q from 1e-20 to 1e20", by_row, one, one},
    {"rows of k from 1e-20 to 1e20", one, by_row, one},
    {"rows of v from 1e-20 to 1e20", one, one, by_row},
    {"columns of v from 1e-20 to 1e20", one, one, by_column},
    {"v of 1e-30", one, one, [](int, int) { return 1e-30; }},
    {"v of 1e-40", one, one, [](int, int) { return 1e-40; }},
    {"v near the largest number", one, one, [](int, int) { return 2e36; }},
    {"q near the largest number, k near the smallest", [](int, int) { return 3e37; }, [](int, int) { return 3e-38; },
     one},
    {"q subnormal, k large", [](int, int) { return 1e-39; }, [](int, int) { return 1e37; }, one},
    {"q and k small", [](int, int) { return 1e-20; }, [](int, int) { return 1e-20; }, one},
    {"one column of q and k large", [](int, int c) { return c == 5 ? 1e30 : 1.0; },
     [](int, int c) { return c == 5 ? 1e-30 : 1.0; }, one},
};

template <class R>
struct Arrays {
  typedef typename R::Stored Stored;
  std::vector<Stored> q, k, v, out;
  std::vector<char> kept;
  int64_t head = 0;
  Problem p{};

  explicit Arrays(const Scales& by) : kept(size_t(kQueries) * kKeys, 1) {
    std::mt19937 rng(5);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<Stored>& x, int rows, int cols, double (*scale)(int, int)) {
      for (int i = 0; i < rows * cols; ++i) {
        x.push_back(R::encode(static_cast<float>(normal(rng) * scale(i / cols, i % cols))));
      }
    };
    fill(q, kQueries, kD, by.query);
    fill(k, kKeys, kD, by.key);
    fill(v, kKeys, kDv, by.value);
    out.resize(size_t(kQueries) * kDv);
    const auto view = [&](const std::vector<Stored>& x, int cols) {
      return Input{reinterpret_cast<const char*>(x.data()), &head, cols * ptrdiff_t(sizeof(Stored)), sizeof(Stored)};
    };
    p.query = view(q, kD), p.key = view(k, kD), p.value = view(v, kDv);
    p.out = {reinterpret_cast<char*>(out.data()), &head, kDv * ptrdiff_t(sizeof(Stored)), sizeof(Stored)};
    p.mask = {Mask::kBytes, {kept.data(), &head, kKeys, 1}, 0, 0};
    p.heads = 1, p.queries = p.row_end = kQueries, p.keys = kKeys, p.d = kD, p.dv = kDv, p.scale = 0.125;
  }
};

template <class R>
std::vector<typename R::Stored> answer(const Table& table, Arrays<R>& a) {
  attend(table.engines[R::kEngine], a.p, 1, Poll());
  return a.out;
}

// Row i by the definition; of each column the sum of the sizes of what it adds.
template <class R>
void exact(const Arrays<R>& a, int i, std::vector<long double>& out, std::vector<long double>& size) {
  std::vector<long double> score(kKeys);
  long double peak = -INFINITY, total = 0;
  for (int j = 0; j < kKeys; ++j) {
    for (int c = 0; c < kD; ++c) {
      score[j] += static_cast<long double>(R::decode(a.q[i * kD + c])) * R::decode(a.k[j * kD + c]);
    }
    score[j] *= 0.125L;
    peak = score[j] > peak ? score[j] : peak;
  }
  out.assign(kDv, 0), size.assign(kDv, 0);
  for (long double& s : score) total += s = ::expl(s - peak);
  for (int j = 0; j < kKeys; ++j) {
    for (int c = 0; c < kDv; ++c) {
      const long double term = score[j] / total * R::decode(a.v[j * kDv + c]);
      out[c] += term, size[c] += ::fabsl(term);
    }
  }
}

// The largest error beside the sizes that make the output, and beside what subnormals leave of it.
template <class R>
double worst(const Arrays<R>& a, const std::vector<typename R::Stored>& got) {
  std::vector<long double> want, size;
  long double most = 0;
  for (int i = 0; i < kQueries; ++i) {
    exact(a, i, want, size);
    for (int c = 0; c < kDv; ++c) {
      const long double error = ::fabsl(R::decode(got[i * kDv + c]) - want[c]) / (size[c] + 0x1p-126L);
      if (!(error <= most)) most = error == error ? error : INFINITY;
    }
  }
  return static_cast<double>(most);
}

template <class R>
void test_errors(const Table& table, const Table& plain) {
  for (const Scales& by : kScales) {
    Arrays<R> a(by);
    const double error = worst(a, answer(table, a)), usual = worst(a, answer(plain, a));
    const double more = R::kEngine == 0 ? 0x1p-23 : 0x1p-8;  // weights are rounded to bfloat16 with such values
    CHECK(error <= 1.5 * usual + more, "%s %s, %s: error %.3g, by FMA %.3g", table.name, R::kName, by.name, error,
          usual);
  }
}

// Each row of q alone, then one hidden key that is out of range: no bit of the others changes.
template <class R>
void test_bits(const Table& table) {
  for (const Scales& by : kScales) {
    Arrays<R> a(by);
    const auto want = answer(table, a);
    for (int i = 0; i < kQueries; ++i) {
      a.p.row_begin = i, a.p.row_end = i + 1;
      const auto alone = answer(table, a);
      CHECK(memcmp(&alone[i * kDv], &want[i * kDv], kDv * sizeof want[0]) == 0, "%s, row %d alone", by.name, i);
    }
  }
  for (double odd : {1e-30, 1e30, 1e-40, 3e38, double(INFINITY), double(NAN)}) {
    Arrays<R> a(kScales[0]);
    for (int i = 0; i < kQueries; i += 2) a.kept[i * kKeys + 50] = 0;
    const auto want = answer(table, a);
    for (int c = 0; c < kD; ++c) a.k[50 * kD + c] = R::encode(static_cast<float>(odd));
    for (int c = 0; c < kDv; ++c) a.v[50 * kDv + c] = R::encode(static_cast<float>(odd));
    const auto got = answer(table, a);
    for (int i = 0; i < kQueries; i += 2) {
      CHECK(memcmp(&got[i * kDv], &want[i * kDv], kDv * sizeof want[0]) == 0, "a hidden %g reached row %d", odd, i);
    }
  }
}

// Inf and NaN in each factor: numbers, infinities and NaNs where the plain target has them, and the same numbers.
template <class R>
void test_not_finite(const Table& table, const Table& plain) {
  for (float odd : {INFINITY, -INFINITY, NAN}) {
    for (int which = 0; which < 3; ++which) {
      Arrays<R> a(kScales[0]);
      (which == 0 ? a.q[3 * kD + 7] : which == 1 ? a.k[3 * kD + 7] : a.v[3 * kDv + 7]) = R::encode(odd);
      const auto got = answer(table, a), want = answer(plain, a);
      std::vector<long double> sum, size;
      for (int i = 0; i < kQueries * kDv; ++i) {
        if (i % kDv == 0) exact(a, i / kDv, sum, size);
        const double x = R::decode(got[i]), y = R::decode(want[i]);
        const double most = R::kApart * double(size[i % kDv]) + 2 * R::kUnit * ::fabs(y);
        CHECK((x != x && y != y) || x == y || ::fabs(x - y) <= most, "%g in %d: %.9g, by FMA %.9g", odd, which, x, y);
      }
    }
  }
}

template <class R>
void test_range(const Table& table, const Table& plain) {
  test_errors<R>(table, plain);
  test_bits<R>(table);
  test_not_finite<R>(table, plain);
}

}  // namespace

void test_ranges(const Table& table, const Table& plain) {
  test_range<Wide>(table, plain);
  test_range<Brief>(table, plain);
}

}  // namespace regard
