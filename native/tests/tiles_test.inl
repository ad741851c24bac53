// SPDX-License-Identifier: Apache-2.0
// Products by tiles, piece by piece; included after a kernel.inl that has them: over the instruction where there is
// one, over its model everywhere.
#include "noise.inl"

namespace regard {
namespace REGARD_TARGET {
namespace {

struct Operands {
  BFloat16 a[kTileSize], b[kTileSize];
  float c[kSide * kSide];
  explicit Operands(Noise& noise) {
    for (BFloat16& x : a) narrow(noise.spread(), x);
    for (BFloat16& x : b) narrow(noise.spread(), x);
    for (float& x : c) x = noise.spread();
  }
  float left(int m, int k) const { return widen(a[kDeep * m + k]); }
  float right(int k, int n) const { return widen(b[kDeep * (k / 2) + 2 * n + k % 2]); }
};

// The pieces of one number, `step` apart.
template <int K>
void split_one(float x, BFloat16* to, ptrdiff_t step) {
  Sixteen all;
  BFloat16 pieces[K * kSide];
  for (float& y : all) y = x;
  split<K>(all, pieces, kSide);
  for (int n = 0; n < K; ++n) to[n * step] = pieces[n * kSide + 3];
}

// A register is filled by a product with the identity: nothing else loads floats.
template <class Unit>
void multiply(const Operands& x, float* out) {
  const Unit use;
  BFloat16 one[kTileSize] = {}, pieces[3][kTileSize] = {};
  for (int i = 0; i < kSide; ++i) narrow(1.0f, one[kDeep * i + i]);
  for (int i = 0; i < kSide * kSide; ++i) {
    split_one<3>(x.c[i], &pieces[0][kDeep * (i / kSide / 2) + 2 * (i % kSide) + i / kSide % 2], kTileSize);
  }
  Unit::template zero<0>();
  Unit::template load<1>(one, kDeep);
  for (const auto& piece : pieces) {
    Unit::template load<2>(piece, kDeep);
    Unit::template dot<0, 1, 2>();
  }
  Unit::template load<3>(x.a, kDeep);
  Unit::template load<4>(x.b, kDeep);
  Unit::template dot<0, 3, 4>();
  Unit::template store<0>(out, kSide);
}

// The formula, and the sum in long double.
void test_dot() {
  Noise noise;
  for (int round = 0; round < 200; ++round) {
    const Operands x(noise);
    float got[kSide * kSide];
    multiply<Tiles>(x, got);
    for (int m = 0; m < kSide; ++m) {
      for (int n = 0; n < kSide; ++n) {
        float chain[2] = {0, 0};
        const float c = x.c[kSide * m + n];
        long double sum = c, size = ::fabsf(c);
        for (int k = 0; k < kDeep; ++k) {
          chain[k % 2] = __builtin_fmaf(x.left(m, k), x.right(k, n), chain[k % 2]);
          sum += static_cast<long double>(x.left(m, k)) * x.right(k, n);
          size += ::fabsl(static_cast<long double>(x.left(m, k)) * x.right(k, n));
        }
        const float want = c + (chain[0] + chain[1]);
        CHECK(got[kSide * m + n] == want, "(%d, %d) is %.9g, not %.9g", m, n, got[kSide * m + n], want);
        CHECK(::fabsl(got[kSide * m + n] - sum) <= 18 * 0x1p-24L * size, "(%d, %d) is far from the sum", m, n);
      }
    }
  }
}

// NaN in another row or column, subnormals among the factors.
void test_dot_is_by_element() {
  Noise noise;
  Operands x(noise);
  float want[kSide * kSide], got[kSide * kSide];
  multiply<Tiles>(x, want);
  for (int k = 0; k < kDeep; ++k) x.a[kDeep * 3 + k].bits = 0x7fc0, x.b[kDeep * (k / 2) + 2 * 5 + k % 2].bits = 0xff80;
  multiply<Tiles>(x, got);
  for (int i = 0; i < kSide * kSide; ++i) {
    if (i / kSide != 3 && i % kSide != 5) CHECK(got[i] == want[i], "rubbish reached (%d, %d)", i / kSide, i % kSide);
  }
  for (BFloat16& y : x.a) narrow(0x1p-130f, y);
  for (BFloat16& y : x.b) narrow(0x1p100f, y);
  multiply<Tiles>(x, got);
  for (int i = 0; i < kSide * kSide; ++i) CHECK(got[i] == x.c[i], "a subnormal is not zero: %g", got[i] - x.c[i]);
}

// The pieces make the number, and none of them is subnormal: each float16, and floats in the range of values with
// every end of a mantissa, ties included.
void test_split() {
  BFloat16 to[3];
  const auto normal = [](float x) { return x == 0 || ::fabsf(x) >= 0x1p-126f; };
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    Half half;
    half.bits = static_cast<uint16_t>(bits);
    const float x = widen(half);
    if (!(x - x == 0)) continue;
    split_one<2>(x, to, 1);
    CHECK(widen(to[0]) + widen(to[1]) == x, "%g is not %g + %g", x, widen(to[0]), widen(to[1]));
    CHECK(normal(widen(to[0])) && normal(widen(to[1])), "a piece of %g is subnormal", x);
  }
  Noise noise;
  for (uint32_t n = 0; n < 1 << 18; ++n) {
    const uint32_t exponent = 127 - 80 + (noise.bits() >> 8) % 200, high = noise.bits() >> 25;
    const float x = bit_cast<float>(exponent << 23 | high << 16 | (n & 0xffff)) * (n & 1 << 16 ? -1.0f : 1.0f);
    split_one<3>(x, to, 1);
    const float y[3] = {widen(to[0]), widen(to[1]), widen(to[2])};
    CHECK(static_cast<double>(y[0]) + y[1] + y[2] == x, "%.9g is not %.9g + %.9g + %.9g", x, y[0], y[1], y[2]);
    CHECK(::fabsf(y[1]) <= 0x1p-8f * ::fabsf(y[0]) && ::fabsf(y[2]) <= 0x1p-16f * ::fabsf(y[0]), "far pieces: %g", x);
    CHECK(normal(y[0]) && normal(y[1]) && normal(y[2]), "a piece of %g is subnormal", x);
  }
}

// As Tiled packs them: element (r, k) of the left factor, (k, c) of the right one, their pieces one after the other.
template <int A, int B, class Left, class Right>
void test_tile_product(int rows, int cols, int steps) {
  constexpr int kMost = 3 * kDeep;
  Noise noise;
  static float a[2 * kSide * kMost], b[kMost * 2 * kSide], got[4 * kSide * kSide];
  static BFloat16 left[A * 2 * kSide * kMost], right[B * kMost * 2 * kSide];
  const auto draw = [&](auto x) {
    narrow(noise(), x);
    return float(widen(x));
  };
  for (float& x : a) x = draw(Left{});
  for (float& x : b) x = draw(Right{});
  for (int i = 0; i < 2 * kSide * kMost; ++i) split_one<A>(a[i], left + i, 2 * kSide * kMost);
  for (int k = 0; k < kMost; ++k) {
    for (int c = 0; c < 2 * kSide; ++c) {
      BFloat16* const tile = right + (k / kDeep * 2 + c / kSide) * kTileSize;
      split_one<B>(b[k * 2 * kSide + c], tile + k % kDeep / 2 * kDeep + c % kSide * 2 + k % 2, kMost * 2 * kSide);
    }
  }
  const ptrdiff_t piece = 2 * kSide * kMost;
  const Tiles use;
  tile_product<A, B>({left, kMost, piece}, {left + kSide * kMost, kMost, piece}, rows, cols, {right, 2, piece}, 1,
                     steps, got, 2 * kSide);
  for (int r = 0; r < rows * kSide; ++r) {
    for (int c = 0; c < cols * kSide; ++c) {
      long double want = 0, size = 0;
      for (int k = kDeep; k < steps * kDeep; ++k) {
        const long double term = static_cast<long double>(a[r * kMost + k]) * b[k * 2 * kSide + c];
        want += term, size += ::fabsl(term);
      }
      const double error = static_cast<double>(::fabsl(got[r * 2 * kSide + c] - want) / size * 0x1p24L);
      CHECK(error <= 2, "%d x %d pieces, (%d, %d) is off by %.3f units", A, B, r, c, error);
    }
  }
}

template <int A, int B, class Left, class Right>
void test_tile_products() {
  for (int rows = 1; rows <= 2; ++rows) {
    for (int cols = 1; cols <= 2; ++cols) {
      for (int steps = 2; steps <= 3; ++steps) test_tile_product<A, B, Left, Right>(rows, cols, steps);
    }
  }
}

}  // namespace

void test_tiles() {
  test_dot();
  test_dot_is_by_element();
  test_split();
  test_tile_products<1, 1, BFloat16, BFloat16>();
  test_tile_products<2, 2, Half, Half>();
  test_tile_products<3, 2, float, Half>();
  test_tile_products<3, 3, float, float>();
}

}  // namespace REGARD_TARGET
}  // namespace regard
