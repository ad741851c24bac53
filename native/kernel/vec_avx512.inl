// SPDX-License-Identifier: Apache-2.0
// AVX-512 F, DQ: 32 registers. 24 sums in both products: 8 keys by 3 vectors of queries, which with their scores stay
// in a 32 KB L1 (experiments/0013), and 6 rows by 4 vectors of columns.

struct F32 {
  typedef float T;
  typedef __m512 V;
  typedef __m512i Bits;
  static constexpr int kLanes = 16, kSums = 24, kCols = 3, kWide = 4, kTurn = 8, kPowers = 16, kBlock = 96;
  static constexpr bool kAcross = true, kRegroups = false;
  template <class>
  static constexpr int kNearKeys = 32;
  template <class>
  static constexpr int kNearValues = 8;

  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static V load(const Half* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static V load(const BFloat16* p) { return widen16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static void store(T* p, V x) { _mm512_storeu_ps(p, x); }
  static V set(T x) { return _mm512_set1_ps(x); }
  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static V div(V a, V b) { return _mm512_div_ps(a, b); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static V max(V a, V b) { return _mm512_max_ps(a, b); }  // b where either is NaN
  // y, or 0, where a < b, else n, or y; a NaN compares false.
  static V select_less(V a, V b, V y, V n) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), n, y); }
  static V zero_less(V a, V b, V y) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ), y); }

  // An integer n near x * by, in a form that both n and 2^n are read from.
  static V power(V x, T by) {
    return _mm512_roundscale_ps(mul(x, set(by)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static V number(V power) { return power; }
  static V scale2(V x, V power) { return _mm512_scalef_ps(x, power); }

  // A constant that stays in its register: GCC reads one from memory at each use, and there is one load per cycle.
  static V held(V x) {
    asm("" : "+v"(x));
    return x;
  }
  static V constant(T x) { return held(set(x)); }
  // Numbers n near 16 x log2 e, for n in [-4096, 4095], in a form that both n and 2^(n/16) are read from: with 1.5 *
  // 2^23 added, n is in the low bits. Of these the lowest four choose from the table, whose bits are those of 2^(j/16)
  // less what j adds when n is shifted into the exponent.
  struct Powers {
    static constexpr T kSecond = 0.50001620f;  // the least error with 1/6 beside it
    V by = constant(23.0831207f), shift = constant(0x1.8p23f), table = held(powers());
    V near(V x) const { return fma(x, by, shift); }
    V number(V at) const { return sub(at, shift); }
    V of(V at) const {
      const Bits n = _mm512_castps_si512(at), power = _mm512_permutexvar_epi32(n, _mm512_castps_si512(table));
      return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(n, 19), power));
    }
  };

  // One word per lane; the bits are asked from the top one down.
  static Bits bits(const uint32_t* p) { return _mm512_loadu_si512(p); }
  static Bits shift(Bits b, int n) { return _mm512_sll_epi32(b, _mm_cvtsi32_si128(n)); }
  static Bits next(Bits b) { return _mm512_slli_epi32(b, 1); }
  static V select_top(Bits b, V yes, V no) { return _mm512_mask_blend_ps(_mm512_movepi32_mask(b), no, yes); }

  // Four columns of kLanes rows: lane l of x[c] is p[l * row + c]. And back.
  template <class E>
  static void load_columns(const E* p, ptrdiff_t row, V (&x)[4]) {
    for (int r = 0; r < 4; ++r) x[r] = four(p + r * row, 4 * row);
    transpose(x);
  }
  // Eight columns, out of halves of rows: fewer vectors are put together from memory (experiments/0015).
  static void load_columns(const float* p, ptrdiff_t row, V (&x)[8]) {
    V above[4], below[4];
    for (int r = 0; r < 4; ++r) {
      above[r] = eight(p + r * row, p + (r + 4) * row);
      below[r] = eight(p + (r + 8) * row, p + (r + 12) * row);
    }
    transpose(above);
    transpose(below);
    for (int c = 0; c < 4; ++c) {
      x[c] = _mm512_shuffle_f32x4(above[c], below[c], 0x88);
      x[c + 4] = _mm512_shuffle_f32x4(above[c], below[c], 0xdd);
    }
  }
  // Two neighbours are one word until they are apart: half of the shuffles.
  static void load_columns(const BFloat16* p, ptrdiff_t row, V (&x)[4]) {
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    const V a = pairs(p, row), b = pairs(p + 2 * row, row);
    const __m512i first = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88));
    const __m512i second = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd));
    x[0] = _mm512_castsi512_ps(_mm512_slli_epi32(first, 16));
    x[1] = _mm512_castsi512_ps(_mm512_and_si512(first, high));
    x[2] = _mm512_castsi512_ps(_mm512_slli_epi32(second, 16));
    x[3] = _mm512_castsi512_ps(_mm512_and_si512(second, high));
  }
  static void store_columns(V (&x)[4], T* p, ptrdiff_t row) {
    transpose(x);
    for (int r = 0; r < 4; ++r) {
      _mm_storeu_ps(p + r * row, _mm512_castps512_ps128(x[r]));
      _mm_storeu_ps(p + (r + 4) * row, _mm512_extractf32x4_ps(x[r], 1));
      _mm_storeu_ps(p + (r + 8) * row, _mm512_extractf32x4_ps(x[r], 2));
      _mm_storeu_ps(p + (r + 12) * row, _mm512_extractf32x4_ps(x[r], 3));
    }
  }
  // Lane l is the sum of the lanes of x[l].
  static V sums(const V (&x)[kLanes]) {
    V a[8], b[4], c[2];
    for (int i = 0; i < 8; ++i) {
      const V y = x[2 * i], z = x[2 * i + 1];
      a[i] = add(_mm512_unpacklo_ps(y, z), _mm512_unpackhi_ps(y, z));
    }
    for (int i = 0; i < 4; ++i) {
      const V y = a[2 * i], z = a[2 * i + 1];
      b[i] = add(_mm512_shuffle_ps(y, z, 0x44), _mm512_shuffle_ps(y, z, 0xee));
    }
    for (int i = 0; i < 2; ++i) {
      const V y = b[2 * i], z = b[2 * i + 1];
      c[i] = add(_mm512_shuffle_f32x4(y, z, 0x44), _mm512_shuffle_f32x4(y, z, 0xee));
    }
    return add(_mm512_shuffle_f32x4(c[0], c[1], 0x88), _mm512_shuffle_f32x4(c[0], c[1], 0xdd));
  }

 private:
  static V powers() {
    return _mm512_castsi512_ps(_mm512_setr_epi32(0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532,
                                                 0x3f75fed7, 0x3f75583f, 0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c,
                                                 0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d));
  }
  static V widen16(__m256i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
  static V four(const float* p, ptrdiff_t step) {
    V x = _mm512_castps128_ps512(_mm_loadu_ps(p));
    x = _mm512_insertf32x4(x, _mm_loadu_ps(p + step), 1);
    x = _mm512_insertf32x4(x, _mm_loadu_ps(p + 2 * step), 2);
    return _mm512_insertf32x4(x, _mm_loadu_ps(p + 3 * step), 3);
  }
  static V eight(const float* p, const float* q) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(p)), _mm256_loadu_ps(q), 1);
  }
  static __m256i gather(const Half* p, ptrdiff_t step) {
    int64_t x[4];
    for (int r = 0; r < 4; ++r) memcpy(x + r, p + r * step, sizeof x[r]);
    return _mm256_set_epi64x(x[3], x[2], x[1], x[0]);
  }
  static V four(const Half* p, ptrdiff_t step) { return _mm512_cvtph_ps(gather(p, step)); }
  // Four elements each of two neighbouring rows in each quarter; quarters are four rows apart.
  static V pairs(const BFloat16* p, ptrdiff_t row) {
    V x = _mm512_castps128_ps512(two(p, p + row));
    x = _mm512_insertf32x4(x, two(p + 4 * row, p + 5 * row), 1);
    x = _mm512_insertf32x4(x, two(p + 8 * row, p + 9 * row), 2);
    return _mm512_insertf32x4(x, two(p + 12 * row, p + 13 * row), 3);
  }
  static __m128 two(const BFloat16* p, const BFloat16* q) {
    const __m128 low = _mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    return _mm_loadh_pi(low, reinterpret_cast<const __m64*>(q));
  }
  // Of each quarter.
  static void transpose(V (&x)[4]) {
    const V a = _mm512_unpacklo_ps(x[0], x[1]), b = _mm512_unpackhi_ps(x[0], x[1]);
    const V c = _mm512_unpacklo_ps(x[2], x[3]), d = _mm512_unpackhi_ps(x[2], x[3]);
    x[0] = _mm512_shuffle_ps(a, c, 0x44);
    x[1] = _mm512_shuffle_ps(a, c, 0xee);
    x[2] = _mm512_shuffle_ps(b, d, 0x44);
    x[3] = _mm512_shuffle_ps(b, d, 0xee);
  }
};

struct F64 {
  typedef double T;
  typedef __m512d V;
  typedef __m512i Bits;
  static constexpr int kLanes = 8, kSums = 24, kCols = 3, kWide = 4, kTurn = 4, kPowers = 0, kBlock = 96;
  static constexpr bool kAcross = false, kRegroups = false;
  template <class>
  static constexpr int kNearKeys = 32;
  template <class>
  static constexpr int kNearValues = 8;

  static V load(const double* p) { return _mm512_loadu_pd(p); }
  static void store(T* p, V x) { _mm512_storeu_pd(p, x); }
  static V set(T x) { return _mm512_set1_pd(x); }
  static V add(V a, V b) { return _mm512_add_pd(a, b); }
  static V sub(V a, V b) { return _mm512_sub_pd(a, b); }
  static V mul(V a, V b) { return _mm512_mul_pd(a, b); }
  static V div(V a, V b) { return _mm512_div_pd(a, b); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
  static V max(V a, V b) { return _mm512_max_pd(a, b); }
  static V select_less(V a, V b, V y, V n) { return _mm512_mask_blend_pd(_mm512_cmp_pd_mask(a, b, _CMP_LT_OQ), n, y); }
  static V zero_less(V a, V b, V y) { return _mm512_maskz_mov_pd(_mm512_cmp_pd_mask(a, b, _CMP_NLT_UQ), y); }

  static V power(V x, T by) {
    return _mm512_roundscale_pd(mul(x, set(by)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static V number(V power) { return power; }
  static V scale2(V x, V power) { return _mm512_scalef_pd(x, power); }

  static Bits bits(const uint32_t* p) {
    return _mm512_slli_epi64(_mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 32);
  }
  static Bits shift(Bits b, int n) { return _mm512_sll_epi64(b, _mm_cvtsi32_si128(n)); }
  static Bits next(Bits b) { return _mm512_slli_epi64(b, 1); }
  static V select_top(Bits b, V yes, V no) { return _mm512_mask_blend_pd(_mm512_movepi64_mask(b), no, yes); }

  static void load_columns(const double* p, ptrdiff_t row, V (&x)[4]) {
    for (int r = 0; r < 4; ++r) {
      x[r] = _mm512_insertf64x4(_mm512_castpd256_pd512(_mm256_loadu_pd(p + r * row)),
                                _mm256_loadu_pd(p + (r + 4) * row), 1);
    }
    transpose(x);
  }
  static void store_columns(V (&x)[4], T* p, ptrdiff_t row) {
    transpose(x);
    for (int r = 0; r < 4; ++r) {
      _mm256_storeu_pd(p + r * row, _mm512_castpd512_pd256(x[r]));
      _mm256_storeu_pd(p + (r + 4) * row, _mm512_extractf64x4_pd(x[r], 1));
    }
  }

 private:
  // Of each half.
  static void transpose(V (&x)[4]) {
    const V a = _mm512_unpacklo_pd(x[0], x[1]), b = _mm512_unpackhi_pd(x[0], x[1]);
    const V c = _mm512_unpacklo_pd(x[2], x[3]), d = _mm512_unpackhi_pd(x[2], x[3]);
    const __m512i low = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0), high = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
    x[0] = _mm512_permutex2var_pd(a, low, c);
    x[1] = _mm512_permutex2var_pd(b, low, d);
    x[2] = _mm512_permutex2var_pd(a, high, c);
    x[3] = _mm512_permutex2var_pd(b, high, d);
  }
};
