// SPDX-License-Identifier: Apache-2.0
// Whole problems through the entry points, against a few lines of float64, and against themselves bit for bit.
#include <math.h>
#include <string.h>

#include <algorithm>
#include <random>
#include <type_traits>
#include <vector>

#include "attend.h"
#include "check.h"
#include "float_mode.h"

namespace regard {
namespace {

// Elements as they are stored: what a double becomes, what it was, and the type that is computed with.
template <class E>
struct Real {
  typedef E Stored;
  typedef E Score;
  static E encode(double x) { return static_cast<E>(x); }
  static double decode(E x) { return x; }
  static double tolerance() { return sizeof(E) == 8 ? 1e-13 : 1e-5; }
};

// 16 bits, of which `kMantissa` are the fraction's; encoding cuts off, and subnormals are not made.
template <int kMantissa>
struct Short {
  typedef uint16_t Stored;
  typedef float Score;
  static constexpr int kBias = (1 << (14 - kMantissa)) - 1;
  static uint16_t encode(double x) {
    int e;
    const double fraction = ::frexp(::fabs(x), &e);  // in [0.5, 1)
    if (fraction == 0 || e - 1 <= -kBias) return 0;
    const int bits = static_cast<int>(::ldexp(fraction, kMantissa + 1)) - (1 << kMantissa);
    return static_cast<uint16_t>((x < 0 ? 0x8000 : 0) | (e - 1 + kBias) << kMantissa | bits);
  }
  static double decode(uint16_t x) {
    const int e = (x & 0x7fff) >> kMantissa, bits = x & ((1 << kMantissa) - 1);
    const double size =
        e == 0 ? ::ldexp(bits, 1 - kBias - kMantissa) : ::ldexp((1 << kMantissa) + bits, e - kBias - kMantissa);
    return e == 2 * kBias + 1 ? (bits ? NAN : INFINITY) : x & 0x8000 ? -size : size;
  }
  static double tolerance() { return ::ldexp(2.0, -kMantissa); }
};

struct Case {
  int heads, group, queries, keys, d, dv;
  Mask::Kind kind;
  bool biased = false;  // by a row of distances, and by a number per key that is -inf now and then
};

// Owns what a Problem refers to.
template <class R>
struct Setting {
  typedef typename R::Stored Stored;
  typedef std::vector<Stored> Elements;
  typedef std::vector<typename R::Score> Scores;
  static constexpr int kSize = sizeof(Stored);

  Case c;
  Elements q, k, v, out;
  Scores max, sum, lse;
  std::vector<int64_t> qh, kh, vh, oh, mh;
  std::vector<char> kept;        // (query, key), what the mask means, and a bias of -inf
  std::vector<char> mask_bytes;  // its lowered form
  std::vector<float> distances;
  std::vector<double> per_key;
  Bias biases[2];
  Problem p{};

  Setting(const Case& n, uint32_t seed) : c(n) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    const int kv = n.heads / n.group;
    const auto fill = [&](Elements& x, size_t count) {
      x.resize(count);
      for (Stored& y : x) y = R::encode(normal(rng));
    };
    fill(q, size_t(n.heads) * n.queries * n.d);
    fill(k, size_t(kv) * n.keys * n.d);
    fill(v, size_t(kv) * n.keys * n.dv);
    clear_out();
    max.assign(size_t(n.heads) * n.queries, NAN);
    sum = lse = max;
    for (int h = 0; h < n.heads; ++h) {
      qh.push_back(int64_t(h) * n.queries * n.d * kSize);
      kh.push_back(int64_t(h / n.group) * n.keys * n.d * kSize);
      vh.push_back(int64_t(h / n.group) * n.keys * n.dv * kSize);
      oh.push_back(int64_t(h) * n.queries * n.dv * kSize);
      mh.push_back(0);
    }
    lower(rng);
    if (n.biased) add_biases(rng);
    p.query = {bytes(q), qh.data(), n.d * kSize, kSize};
    p.key = {bytes(k), kh.data(), n.d * kSize, kSize};
    p.value = {bytes(v), vh.data(), n.dv * kSize, kSize};
    p.out = {reinterpret_cast<char*>(out.data()), oh.data(), n.dv * kSize, kSize};
    p.stats = {max.data(), sum.data(), lse.data()};
    p.heads = n.heads;
    p.queries = n.queries;
    p.keys = n.keys;
    p.row_begin = 0;
    p.row_end = n.queries;
    p.d = n.d;
    p.dv = n.dv;
    p.scale = 0.3;
  }

  void clear_out() { out.assign(size_t(c.heads) * c.queries * c.dv, static_cast<Stored>(77)); }

  static const char* bytes(const Elements& x) { return reinterpret_cast<const char*>(x.data()); }

  void lower(std::mt19937& rng) {
    kept.assign(size_t(c.queries) * c.keys, 1);
    const int row_bytes = (c.keys + 7) / 8;
    if (c.kind == Mask::kFull) return;
    for (int i = 0; i < c.queries; ++i) {
      char* row = kept.data() + size_t(i) * c.keys;
      int64_t span[2][2];
      for (auto& s : span) s[0] = s[1] = c.keys;
      if (c.kind == Mask::kSpans && i % 5 != 4) {  // two ranges, one, or none
        int cut[4];
        for (int& x : cut) x = static_cast<int>(rng() % (c.keys + 1));
        std::sort(cut, cut + 4);
        if (cut[1] == cut[2]) cut[2] = cut[3];
        span[0][0] = cut[0], span[0][1] = cut[1], span[1][0] = cut[2], span[1][1] = cut[3];
      }
      for (int j = 0; j < c.keys; ++j) {
        if (c.kind == Mask::kSpans) row[j] = (j >= span[0][0] && j < span[0][1]) || (j >= span[1][0] && j < span[1][1]);
        if (c.kind != Mask::kSpans) row[j] = i % 5 != 4 && rng() % 3 == 0;
      }
      if (c.kind == Mask::kSpans) append(span, sizeof span);
      if (c.kind == Mask::kBytes) append(row, size_t(c.keys));
      if (c.kind == Mask::kBits) {
        std::vector<char> packed(row_bytes, 0);
        for (int j = 0; j < c.keys; ++j) packed[j / 8] |= static_cast<char>(row[j] << (j % 8));
        append(packed.data(), packed.size());
      }
    }
    const ptrdiff_t row = c.queries ? static_cast<ptrdiff_t>(mask_bytes.size()) / c.queries : 0;
    p.mask = {c.kind, {mask_bytes.data(), mh.data(), row, 1}, 2, 0};
  }

  void add_biases(std::mt19937& rng) {
    std::normal_distribution<float> normal;
    for (int n = 0; n < c.queries + c.keys - 1; ++n) distances.push_back(normal(rng));
    for (int j = 0; j < c.keys; ++j) per_key.push_back(rng() % 7 ? normal(rng) : -INFINITY);
    const auto* last = reinterpret_cast<const char*>(distances.data() + c.queries - 1);
    biases[0] = {{last, mh.data(), -ptrdiff_t(sizeof(float)), sizeof(float)}, DType::kFloat32};
    biases[1] = {{reinterpret_cast<const char*>(per_key.data()), mh.data(), 0, sizeof(double)}, DType::kFloat64};
    p.biases = biases;
    p.bias_count = 2;
    for (size_t at = 0; at < kept.size(); ++at) kept[at] = kept[at] && per_key[at % c.keys] != -INFINITY;
  }

  double bias(int i, int j) const { return c.biased ? distances[c.queries - 1 - i + j] + per_key[j] : 0; }

  void append(const void* from, size_t size) {
    const char* at = static_cast<const char*>(from);
    mask_bytes.insert(mask_bytes.end(), at, at + size);
  }
};

template <class E>
bool same_bits(const E* a, const E* b, size_t n) {
  return n == 0 || memcmp(a, b, n * sizeof *a) == 0;
}

// Output of one row by the definition; returns the logsumexp.
template <class R>
double exact_row(const Setting<R>& s, int h, int i, std::vector<double>& out) {
  const auto* q = s.q.data() + (size_t(h) * s.c.queries + i) * s.c.d;
  const auto* k = s.k.data() + size_t(h / s.c.group) * s.c.keys * s.c.d;
  const auto* v = s.v.data() + size_t(h / s.c.group) * s.c.keys * s.c.dv;
  std::vector<double> score(s.c.keys, -INFINITY);
  double peak = -INFINITY, total = 0;
  for (int j = 0; j < s.c.keys; ++j) {
    if (!s.kept[size_t(i) * s.c.keys + j]) continue;
    double dot = 0;
    for (int c = 0; c < s.c.d; ++c) dot += R::decode(q[c]) * R::decode(k[size_t(j) * s.c.d + c]);
    score[j] = double(s.p.scale) * dot + s.bias(i, j);
    peak = std::max(peak, score[j]);
  }
  out.assign(s.c.dv, 0);
  if (peak == -INFINITY) return -INFINITY;
  for (int j = 0; j < s.c.keys; ++j) {
    const double weight = ::exp(score[j] - peak);
    total += weight;
    for (int c = 0; c < s.c.dv; ++c) out[c] += weight * R::decode(v[size_t(j) * s.c.dv + c]);
  }
  for (double& x : out) x /= total;
  return peak + ::log(total);
}

template <class R>
void test_agrees(const Engine& engine, const Case& c, const char* name) {
  Setting<R> s(c, 7);
  CHECK(attend(engine, s.p, 2, Poll()) == Outcome::kDone, "%s", name);
  std::vector<double> want;
  for (int h = 0; h < c.heads; ++h) {
    for (int i = 0; i < c.queries; ++i) {
      const double lse = exact_row(s, h, i, want);
      const size_t at = size_t(h) * c.queries + i;
      CHECK(double(s.lse[at]) == lse || ::fabs(s.lse[at] - lse) < std::min(R::tolerance(), 1e-5), "%s: lse %g, want %g",
            name, s.lse[at], lse);
      for (int e = 0; e < c.dv; ++e) {
        const double got = R::decode(s.out[at * c.dv + e]);
        CHECK(::fabs(got - want[e]) <= R::tolerance() * (1 + ::fabs(want[e])),
              "%s: head %d row %d column %d: %g, want %g", name, h, i, e, got, want[e]);
      }
    }
  }
}

// NaN and Inf in turn.
template <class R>
typename R::Stored not_finite(int n) {
  if constexpr (sizeof(typename R::Stored) == 2) {
    return std::is_same_v<R, Short<7>> ? (n % 2 ? 0x7fc0 : 0x7f80) : (n % 2 ? 0x7e00 : 0x7c00);
  } else {
    return n % 2 ? NAN : INFINITY;
  }
}

// Threads, a row alone, and rubbish in another row and behind the mask: no bit of the others changes.
template <class R>
void test_same_bits(const Engine& engine, const Case& c, const char* name) {
  Setting<R> s(c, 8);
  attend(engine, s.p, 1, Poll());
  const auto want = s.out;
  for (int threads : {2, 3}) {
    s.clear_out();
    attend(engine, s.p, threads, Poll());
    CHECK(same_bits(s.out.data(), want.data(), want.size()), "%s: %d threads", name, threads);
  }
  for (int i = 0; i < c.queries; i += 13) {
    s.clear_out();
    s.p.row_begin = i;
    s.p.row_end = i + 1;
    attend(engine, s.p, 1, Poll());
    for (int h = 0; h < c.heads; ++h) {
      const size_t at = (size_t(h) * c.queries + i) * c.dv;
      CHECK(same_bits(&s.out[at], &want[at], c.dv), "%s: row %d alone", name, i);
    }
  }
  s.p.row_begin = 0;
  s.p.row_end = c.queries;
  const int bad = c.queries / 2, hidden = c.keys / 3;
  for (int e = 0; e < c.d; ++e) s.q[size_t(bad) * c.d + e] = not_finite<R>(1);
  for (int e = 0; e < c.dv; ++e) s.v[size_t(hidden) * c.dv + e] = not_finite<R>(e);
  attend(engine, s.p, 2, Poll());
  for (int i = 0; i < c.queries; ++i) {
    if (i == bad || s.kept[size_t(i) * c.keys + hidden]) continue;
    CHECK(same_bits(&s.out[size_t(i) * c.dv], &want[size_t(i) * c.dv], c.dv), "%s: rubbish reached row %d", name, i);
  }
}

template <class R>
void test_weights(const Engine& engine, const Case& c, const char* name) {
  Setting<R> s(c, 9);
  attend(engine, s.p, 1, Poll());
  typedef typename R::Score Score;
  std::vector<Score> weights_out(size_t(c.heads) * c.queries * c.keys, NAN);
  std::vector<int64_t> heads;
  for (int h = 0; h < c.heads; ++h) heads.push_back(int64_t(h) * c.queries * c.keys * int64_t(sizeof(Score)));
  s.p.out = {reinterpret_cast<char*>(weights_out.data()), heads.data(), c.keys * ptrdiff_t(sizeof(Score)),
             sizeof(Score)};
  weights(engine, s.p, 0, c.keys, 2, Poll());
  for (size_t row = 0; row < size_t(c.heads) * c.queries; ++row) {
    double total = 0;
    bool any = false;
    for (int j = 0; j < c.keys; ++j) {
      const bool keep = s.kept[row % c.queries * c.keys + j];
      const Score w = weights_out[row * c.keys + j];
      any = any || keep;
      total += w;
      CHECK(keep || (w == 0 && !signbit(w)), "%s: a dropped pair has weight %g", name, w);
    }
    CHECK(::fabs(total - (any ? 1 : 0)) < 1e-5, "%s: weights sum to %g", name, total);
  }
}

// Whether the calling thread flushes subnormals to zero must not be seen, in whichever thread a row is made.
void test_float_mode(const Engine& engine, const char* target) {
  Setting<Real<float>> s({64, 1, 64, 300, 64, 8, Mask::kFull}, 11);
  for (float& x : s.v) x *= 1e-40f;
  attend(engine, s.p, 2, Poll());
  const auto want = s.out;
  CHECK(want[0] != 0 && ::fabs(want[0]) < 1e-38f, "%s: %g is to be subnormal", target, want[0]);
  const FloatMode mode = float_mode();
  set_float_mode(mode | kFlush);
  for (int threads : {1, 2, 2, 2}) {
    s.clear_out();
    attend(engine, s.p, threads, Poll());
    CHECK(same_bits(s.out.data(), want.data(), want.size()), "%s: flush-to-zero shows", target);
  }
  CHECK(float_mode() == (mode | kFlush), "%s: the caller's mode is restored", target);
  set_float_mode(mode);
}

template <class R>
void test_engine(const Engine& engine, const char* target, const char* dtype) {
  std::vector<Case> cases = {
      {1, 1, 1, 1, 1, 1, Mask::kFull},           {2, 1, 65, 193, 16, 7, Mask::kFull},
      {4, 2, 37, 401, 33, 20, Mask::kSpans},     {3, 3, 70, 200, 5, 64, Mask::kBits},
      {2, 1, 130, 97, 64, 64, Mask::kBytes},     {6, 2, 3, 390, 129, 130, Mask::kSpans},
      {1, 1, 64, 192, 64, 64, Mask::kBits},      {2, 2, 20, 0, 8, 8, Mask::kFull},
      {16, 8, 1, 400, 64, 64, Mask::kFull},      {7, 7, 1, 1700, 64, 64, Mask::kSpans},
      {2, 1, 65, 193, 16, 7, Mask::kFull, true}, {4, 2, 37, 401, 33, 20, Mask::kSpans, true},
      {3, 1, 70, 200, 5, 64, Mask::kBits, true}, {4, 4, 1, 3300, 64, 64, Mask::kFull},
      {3, 1, 2, 3300, 12, 40, Mask::kBytes},     {6, 3, 1, 1700, 20, 257, Mask::kSpans, true},
      {1, 1, 20, 4700, 16, 128, Mask::kBits},
  };
  for (int rows : {engine.panel_rows, 2 * engine.panel_rows, kBlockRows}) {
    for (int step : {-1, 0, 1}) {
      cases.push_back({1, 1, rows + step, engine.tile_keys(20, 12) + step, 20, 12, Mask::kSpans});
      cases.push_back({2, 2, rows + step, 2 * engine.tile_keys(20, 12) + step, 20, 12, Mask::kFull, step == 0});
    }
  }
  for (const Case& c : cases) {
    char name[120];
    snprintf(name, sizeof name, "%s %s (%d/%d, %d, %d, %d, %d) mask %d%s", target, dtype, c.heads, c.group, c.queries,
             c.keys, c.d, c.dv, c.kind, c.biased ? " biased" : "");
    test_agrees<R>(engine, c, name);
    if (c.keys > 1) test_same_bits<R>(engine, c, name);
    test_weights<R>(engine, c, name);
  }
  printf("%s %s: done\n", target, dtype);
}

}  // namespace

void test_table(const Table& t) {
  test_engine<Real<float>>(t.engines[0], t.name, "float32");
  test_float_mode(t.engines[0], t.name);
  test_engine<Real<double>>(t.engines[1], t.name, "float64");
  test_engine<Short<10>>(t.engines[2], t.name, "float16");
  test_engine<Short<7>>(t.engines[3], t.name, "bfloat16");
}

void test_whole(const std::vector<const Table*>& tables) {
  for (const Table* t : tables) test_table(*t);
}

}  // namespace regard
