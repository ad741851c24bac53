// SPDX-License-Identifier: Apache-2.0
// Both products by whole tiles of bfloat16: scores[key][query] = K Q^T with keys as rows, so that what comes of it lies
// as the other way leaves it, and out[query][column] = P V. Which elements meet in which chain of additions follows
// from the column of K, and from the place of a key in its tile: no row's bits depend on another row.

// 16 x 16 results, each the sum of 32 products.
constexpr int kSide = 16, kDeep = 32, kTileSize = kSide * kDeep;

// What is computed with N, its products by tiles of K pieces of bfloat16 per element: one is the element itself, two
// hold a float16 and three a float32. The rest of a rounding is exact, and each piece has 8 bits of it at least. A
// weight has W pieces: three are all of it, and one is 2^-8 of it near.
template <class V_, int K, int W>
struct Pieced : V_ {
  static constexpr int kCols = 4;
};

// Sixteen numbers at a time. GCC would unroll loops of so few before it looks for vectors in them.
typedef float Sixteen[kSide];

// The nearest bfloat16 of each, ties to even; the numbers become what that leaves of them, by the same rounding.
inline void peel(Sixteen& x, uint32_t (&bits)[kSide]) {
  Sixteen near;
  memcpy(bits, x, sizeof x);
#pragma GCC unroll 1
  for (int i = 0; i < kSide; ++i) {
    const uint32_t up = bits[i] + 0x7fff + (bits[i] >> 16 & 1);
    bits[i] = (bits[i] & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : up & 0xffff0000;
  }
  memcpy(near, bits, sizeof near);
#pragma GCC unroll 1
  for (int i = 0; i < kSide; ++i) x[i] -= near[i];
}

template <int K>
inline void split(Sixteen& x, BFloat16* to, ptrdiff_t piece) {
  for (int n = 0; n < K; ++n, to += piece) {
    uint32_t bits[kSide];
    peel(x, bits);
#pragma GCC unroll 1
    for (int i = 0; i < kSide; ++i) to[i].bits = static_cast<uint16_t>(bits[i] >> 16);
  }
}

// The same of two, in pairs.
template <int K>
inline void split_pairs(Sixteen& x, Sixteen& y, BFloat16* to, ptrdiff_t piece) {
  for (int n = 0; n < K; ++n, to += piece) {
    uint32_t first[kSide], second[kSide];
    peel(x, first);
    peel(y, second);
#pragma GCC unroll 1
    for (int i = 0; i < kSide; ++i) first[i] = first[i] >> 16 | second[i];
    memcpy(to, first, sizeof first);
  }
}

// Those of `count` numbers that there are, then zeros.
template <class Row>
inline void take(const Row* from, int count, Sixteen& x) {
  if (count >= kSide) {
#pragma GCC unroll 1
    for (int i = 0; i < kSide; ++i) x[i] = widen(from[i]);
  } else {
    for (int i = 0; i < kSide; ++i) x[i] = i < count ? widen(from[i]) : 0.0f;
  }
}

// A left factor: rows of kDeep elements for each step, `row` elements apart; its pieces are `piece` apart.
struct Rowed {
  const BFloat16* data;
  ptrdiff_t row, piece;
};

// A right factor: tiles of pairs, `across` of them for each step.
struct RightTiles {
  const BFloat16* data;
  ptrdiff_t across, piece;
};

// One product of pieces for a block of R x C tiles, steps [from, to), added to what the registers hold.
template <int R, int C>
inline void add_product(const Rowed (&a)[R], int i, RightTiles b, int from, int to) {
  for (int step = from; step < to; ++step) {
    const BFloat16* const right = b.data + step * b.across * kTileSize;
    Tiles::load<4>(a[0].data + i * a[0].piece + step * kDeep, a[0].row);
    Tiles::load<6>(right, kDeep);
    Tiles::dot<0, 4, 6>();
    if constexpr (C > 1) {
      Tiles::load<7>(right + kTileSize, kDeep);
      Tiles::dot<1, 4, 7>();
    }
    if constexpr (R > 1) {
      Tiles::load<5>(a[1].data + i * a[1].piece + step * kDeep, a[1].row);
      Tiles::dot<2, 5, 6>();
    }
    if constexpr (R > 1 && C > 1) Tiles::dot<3, 5, 7>();
  }
}

// All products of pieces that are not below the last place, the smallest first: the error of a sum is that of its
// largest terms. Of three pieces each these are six, of two all four. A is how many the left factor has, B the right.
template <int A, int B, int R, int C>
inline void tile_product(const Rowed (&a)[R], RightTiles b, int from, int to, float* out, ptrdiff_t row) {
  Tiles::zero<0>();
  if constexpr (C > 1) Tiles::zero<1>();
  if constexpr (R > 1) Tiles::zero<2>();
  if constexpr (R > 1 && C > 1) Tiles::zero<3>();
  for (int order = A + B < 4 ? A + B - 2 : 2; order >= 0; --order) {
    for (int i = 0; i < A; ++i) {
      if (order - i < 0 || order - i >= B) continue;
      add_product<R, C>(a, i, {b.data + (order - i) * b.piece, b.across, 0}, from, to);
    }
  }
  Tiles::store<0>(out, row);
  if constexpr (C > 1) Tiles::store<1>(out + kSide, row);
  if constexpr (R > 1) Tiles::store<2>(out + kSide * row, row);
  if constexpr (R > 1 && C > 1) Tiles::store<3>(out + kSide * row + kSide, row);
}

// The same for one or two tiles of rows and of columns.
template <int A, int B>
inline void tile_product(Rowed above, Rowed below, int rows, int cols, RightTiles b, int from, int to, float* out,
                         ptrdiff_t row) {
  const Rowed one[1] = {above}, two[2] = {above, below};
  if (rows > 1) {
    return cols > 1 ? tile_product<A, B, 2, 2>(two, b, from, to, out, row)
                    : tile_product<A, B, 2, 1>(two, b, from, to, out, row);
  }
  return cols > 1 ? tile_product<A, B, 1, 2>(one, b, from, to, out, row)
                  : tile_product<A, B, 1, 1>(one, b, from, to, out, row);
}
