// SPDX-License-Identifier: Apache-2.0
// Products of pairs, piece by piece; included after a kernel.inl that has them: over the instruction where there is
// one, over its model everywhere.
#include "noise.inl"

namespace regard {
namespace REGARD_TARGET {
namespace {

inline BFloat16 near(float x) {
  BFloat16 y;
  narrow(x, y);
  return y;
}

// One vector of pairs by another, added to a third one.
struct Operands {
  Pair a[F32::kLanes], b[F32::kLanes];
  float c[F32::kLanes];
  Operands(Noise& noise, bool any) {
    const auto draw = [&] { return any ? BFloat16{static_cast<uint16_t>(noise.bits() >> 16)} : near(noise.spread()); };
    for (Pair& x : a) x = {draw(), draw()};
    for (Pair& x : b) x = {draw(), draw()};
    for (float& x : c) x = any ? bit_cast<float>((noise.bits() & 0xffff0000) | noise.bits() >> 16) : noise.spread();
  }
  template <class N>
  void multiply(float* out) const {
    N::store(out, N::fma(N::load(a), N::load(b), F32::load(c)));
  }
};

// The formula: the second elements first, one rounding each.
void test_step() {
  Noise noise;
  for (int round = 0; round < 5000; ++round) {
    const Operands x(noise, false);
    float got[F32::kLanes];
    x.multiply<Paired>(got);
    for (int l = 0; l < F32::kLanes; ++l) {
      const float half = __builtin_fmaf(widen(x.a[l].second), widen(x.b[l].second), x.c[l]);
      const float want = __builtin_fmaf(widen(x.a[l].first), widen(x.b[l].first), half);
      CHECK(got[l] == want, "lane %d is %.9g, not %.9g", l, got[l], want);
    }
  }
}

// Subnormal factors and sums count as zero.
void test_subnormals() {
  const BFloat16 small = near(0x1p-127f), one = near(1), large = near(0x1p100f), least = near(0x1p-126f);
  const BFloat16 half = near(0.5f), zero{};
  float got[F32::kLanes];
  const auto product = [&](Pair a, Pair b, float c) {
    Paired::store(got, Paired::fma(Paired::set(a), Paired::set(b), Paired::set(c)));
    return got[F32::kLanes - 1];
  };
  CHECK(product({small, zero}, {large, zero}, 1) == 1, "a subnormal factor is zero");
  CHECK(product({zero, large}, {zero, small}, 1) == 1, "a subnormal factor is zero");
  CHECK(product({zero, zero}, {one, one}, 0x1p-127f) == 0, "a subnormal sum is zero");
  CHECK(product({least, zero}, {half, zero}, 0) == 0, "a subnormal product is zero");
  CHECK(product({least, zero}, {one, zero}, 0) == 0x1p-126f, "the smallest normal number stays");
}

// Words of two, out of rows and out of vectors.
void test_arrangement() {
  constexpr int kLanes = F32::kLanes, kRow = 11;
  static BFloat16 row[2][kLanes];
  Noise noise;
  float even[kLanes], odd[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    row[0][l].bits = static_cast<uint16_t>(l), row[1][l].bits = static_cast<uint16_t>(100 + l);
    even[l] = noise(), odd[l] = noise();
  }
  Pair zipped[kLanes], nearest[kLanes];
  const int counts[] = {-3, 0, 1, kLanes - 1, kLanes, kLanes + 5};
  for (int firsts : counts) {
    for (int seconds : counts) {
      Paired::store(zipped, Paired::pair(row[0], firsts, row[1], seconds));
      for (int l = 0; l < kLanes; ++l) {
        CHECK(zipped[l].first.bits == (l < firsts ? l : 0) && zipped[l].second.bits == (l < seconds ? 100 + l : 0),
              "pair %d of %d and %d", l, firsts, seconds);
      }
    }
  }
  Paired::store(zipped, Paired::pair(row[0], row[1]));
  Paired::store(nearest, Paired::pair(F32::load(even), F32::load(odd)));
  for (int l = 0; l < kLanes; ++l) {
    CHECK(zipped[l].first.bits == l && zipped[l].second.bits == 100 + l, "pair %d of two rows", l);
    CHECK(nearest[l].first.bits == near(even[l]).bits && nearest[l].second.bits == near(odd[l]).bits, "pair %d", l);
  }
  static Pair rows[kLanes * kRow];
  for (int i = 0; i < kLanes * kRow; ++i) rows[i] = {{static_cast<uint16_t>(i)}, {static_cast<uint16_t>(i + 1)}};
  Paired::Pairs column[4];
  Paired::load_columns(rows + 2, kRow, column);
  for (int c = 0; c < 4; ++c) {
    Paired::store(zipped, column[c]);
    for (int l = 0; l < kLanes; ++l) {
      CHECK(zipped[l].first.bits == l * kRow + 2 + c && zipped[l].second.bits == l * kRow + 3 + c, "row %d", l);
    }
  }
}

// Ties to even and every other end of a mantissa.
void test_nearest() {
  float x[F32::kLanes];
  Pair got[F32::kLanes];
  for (uint32_t low = 0; low < 0x40000; low += F32::kLanes) {
    for (int l = 0; l < F32::kLanes; ++l) x[l] = bit_cast<float>(0x3f7e0000 + low + uint32_t(l));
    Paired::store(got, Paired::pair(F32::load(x), F32::set(0)));
    for (int l = 0; l < F32::kLanes; ++l) CHECK(got[l].first.bits == near(x[l]).bits, "%.9g", x[l]);
  }
}

// One element of each 16-bit pattern among usual ones, wherever it stands.
void test_usual() {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    Pair x[F32::kLanes];
    for (Pair& y : x) y = {near(1.5f), near(-3)};
    BFloat16& odd = bits % 2 ? x[bits / 2 % F32::kLanes].first : x[bits / 2 % F32::kLanes].second;
    odd.bits = static_cast<uint16_t>(bits / 2 | bits % 2 << 15);
    Paired::Usual one, all;
    one.add(Paired::load(x));
    all.add(one);
    const float size = ::fabsf(widen(odd));
    CHECK(all.all() == (0x1p-63f <= size && size < 0x1p65f), "%g", widen(odd));
  }
}

// Keys in the lanes or queries in the lanes: the same scores bit for bit, and those of the formula.
template <int R>
void test_few_scores() {
  constexpr int kPanel = Scratch<Paired>::kPanel, kKeys = 77, kRow = 17;
  static Pair key[kKeys * kRow], query[16 * kPanel];
  static float want[kKeys * kPanel], got[kKeys * kPanel];
  Noise noise;
  for (Pair& x : key) x = {near(noise()), near(noise())};
  for (Pair& x : query) x = {near(noise()), near(noise())};
  float scale[Paired::kLanes];
  for (float& x : scale) x = 0.3f;
  const Rows<Pair> rows{key, kRow};
  const int64_t head = 0;
  const Input in{reinterpret_cast<const char*>(key), &head, kRow * sizeof(Pair), sizeof(BFloat16)};
  const int depths[] = {1, 3, 4, 8, 13};
  for (int d : depths) {
    scores<Paired, 1>(rows, 5, kKeys, query, d, scale, want, Alone{});
    few_scores<Paired, R>(rows, 5, kKeys, query, d, scale, got, Ahead(in, in, 0, 0, 2 * d, 2 * d));
    for (int j = 5; j < kKeys; ++j) {
      for (int r = 0; r < R; ++r) {
        float sum = 0;
        for (int c = 0; c < d; ++c) {
          const Pair x = key[j * kRow + c], y = query[c * kPanel + r];
          sum = __builtin_fmaf(widen(x.first), widen(y.first), __builtin_fmaf(widen(x.second), widen(y.second), sum));
        }
        CHECK(got[j * kPanel + r] == sum * 0.3f && want[j * kPanel + r] == got[j * kPanel + r],
              "d %d key %d row %d of %d", d, j, r, R);
      }
    }
  }
}

}  // namespace

void test_pairs() {
  test_step();
  test_subnormals();
  test_arrangement();
  test_nearest();
  test_usual();
  test_few_scores<1>();
  test_few_scores<2>();
  test_few_scores<3>();
  test_few_scores<4>();
  test_few_scores<kFew<F32>>();
}

}  // namespace REGARD_TARGET
}  // namespace regard
