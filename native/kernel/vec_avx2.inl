// SPDX-License-Identifier: Apache-2.0
// AVX2 + FMA + F16C: 16 registers: 12 sums leave room for 3 columns and 1 broadcast. A panel is 3 vectors of queries, 4
// keys by 3 sums at a time; of v 2 vectors, 6 queries by 2, since 64 columns are no multiple of 3.
// Blocks are large, and their values regrouped (experiments/0020).

struct F32 {
  typedef float T;
  typedef __m256 V;
  typedef __m256i Bits;
  static constexpr int kLanes = 8, kSums = 12, kCols = 3, kWide = 2, kTurn = 4, kPowers = 8, kBlock = 192;
  static constexpr bool kAcross = true, kRegroups = true;
  // Keys and values are asked for again so many rows on: those of 16 bits; others lose by it (experiments/0026).
  template <class Row>
  static constexpr int kNearKeys = sizeof(Row) < 4 ? 32 : 0;
  template <class Row>
  static constexpr int kNearValues = sizeof(Row) < 4 ? 8 : 0;

  static V load(const float* p) { return _mm256_loadu_ps(p); }
  static V load(const Half* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static V load(const BFloat16* p) { return widen8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static void store(T* p, V x) { _mm256_storeu_ps(p, x); }
  static V set(T x) { return _mm256_set1_ps(x); }
  static V add(V a, V b) { return _mm256_add_ps(a, b); }
  static V sub(V a, V b) { return _mm256_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  static V div(V a, V b) { return _mm256_div_ps(a, b); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static V max(V a, V b) { return _mm256_max_ps(a, b); }  // b where either is NaN
  // y, or 0, where a < b, else n, or y; a NaN compares false.
  static V select_less(V a, V b, V y, V n) { return _mm256_blendv_ps(n, y, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
  static V zero_less(V a, V b, V y) { return _mm256_andnot_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ), y); }

  // An integer n near x * by, for n in [-126, 127], in a form that both n and 2^n are read from: with 1.5 * 2^23 + 127
  // added, the low bits are the biased exponent.
  static V power(V x, T by) { return _mm256_fmadd_ps(x, set(by), set(kShift)); }
  static V number(V power) { return _mm256_sub_ps(power, set(kShift)); }
  // A multiplication, so that a NaN stays one whatever the power became.
  static V scale2(V x, V power) {
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(power), 23)));
  }

  // Read at each use: else GCC holds constants in registers and spills the bases and sums of a softmax
  // (experiments/0023).
  static V constant(const T& x) { return set(*anew(&x)); }
  static V constant(T&&) = delete;  // it would be written to the stack first
  // Numbers n near 8 x log2 e, for n in [-2048, 2047], in a form that both n and 2^(n/8) are read from: with 1.5 * 2^23
  // added, n is in the low bits. Of these the lowest three choose from the table, whose bits are those of 2^(j/8) less
  // what j adds when n is shifted into the exponent.
  struct Powers {
    static constexpr T kBy = 11.5415603f, kShift = 0x1.8p23f;
    static constexpr T kSecond = 0.5000645f;  // the least error with 1/6 beside it
    static constexpr uint32_t kEighths[] = {0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7,
                                            0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7};
    V by = constant(kBy), shift = constant(kShift);
    Bits table = bits(anew(kEighths));
    V near(V x) const { return fma(x, by, shift); }
    V number(V at) const { return sub(at, shift); }
    V of(V at) const {
      const Bits n = _mm256_castps_si256(at), power = _mm256_permutevar8x32_epi32(table, n);
      return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(n, 20), power));
    }
  };

  // One word per lane; the bits are asked from the top one down.
  static Bits bits(const uint32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static Bits shift(Bits b, int n) { return _mm256_sll_epi32(b, _mm_cvtsi32_si128(n)); }
  static Bits next(Bits b) { return _mm256_slli_epi32(b, 1); }
  static V select_top(Bits b, V yes, V no) { return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(b)); }

  // Four columns of kLanes rows: lane l of x[c] is p[l * row + c]. And back.
  template <class E>
  static void load_columns(const E* p, ptrdiff_t row, V (&x)[4]) {
    for (int r = 0; r < 4; ++r) x[r] = pair(p + r * row, p + (r + 4) * row);
    transpose(x);
  }
  // Two neighbours are one word until they are apart: half of the shuffles.
  static void load_columns(const BFloat16* p, ptrdiff_t row, V (&x)[4]) {
    const __m256 a = rows(p, p + row, p + 4 * row, p + 5 * row);
    const __m256 b = rows(p + 2 * row, p + 3 * row, p + 6 * row, p + 7 * row);
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000));
    const __m256i first = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
    const __m256i second = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd));
    x[0] = _mm256_castsi256_ps(_mm256_slli_epi32(first, 16));
    x[1] = _mm256_castsi256_ps(_mm256_and_si256(first, high));
    x[2] = _mm256_castsi256_ps(_mm256_slli_epi32(second, 16));
    x[3] = _mm256_castsi256_ps(_mm256_and_si256(second, high));
  }
  static void store_columns(V (&x)[4], T* p, ptrdiff_t row) {
    transpose(x);
    for (int r = 0; r < 4; ++r) {
      _mm_storeu_ps(p + r * row, _mm256_castps256_ps128(x[r]));
      _mm_storeu_ps(p + (r + 4) * row, _mm256_extractf128_ps(x[r], 1));
    }
  }
  // Lane l is the sum of the lanes of x[l].
  static V sums(const V (&x)[kLanes]) {
    V a[4], b[2];
    for (int i = 0; i < 4; ++i) a[i] = _mm256_hadd_ps(x[2 * i], x[2 * i + 1]);
    for (int i = 0; i < 2; ++i) b[i] = _mm256_hadd_ps(a[2 * i], a[2 * i + 1]);
    return add(_mm256_permute2f128_ps(b[0], b[1], 0x20), _mm256_permute2f128_ps(b[0], b[1], 0x31));
  }

 private:
  static constexpr T kShift = 12582912.0f + 127;

  // The same address, as one that GCC knows nothing of.
  template <class E>
  static const E* anew(const E* p) {
    asm volatile("" : "+r"(p));
    return p;
  }
  static V widen8(__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
  template <class E>
  static __m128i both(const E* low, const E* high) {
    return _mm_unpacklo_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(low)),
                              _mm_loadl_epi64(reinterpret_cast<const __m128i*>(high)));
  }
  template <class E>
  static __m256 rows(const E* a, const E* b, const E* c, const E* d) {
    return _mm256_castsi256_ps(_mm256_set_m128i(both(c, d), both(a, b)));
  }
  static V pair(const float* low, const float* high) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
  }
  static V pair(const Half* low, const Half* high) { return _mm256_cvtph_ps(both(low, high)); }
  // Of each half.
  static void transpose(V (&x)[4]) {
    const V a = _mm256_unpacklo_ps(x[0], x[1]), b = _mm256_unpackhi_ps(x[0], x[1]);
    const V c = _mm256_unpacklo_ps(x[2], x[3]), d = _mm256_unpackhi_ps(x[2], x[3]);
    x[0] = _mm256_shuffle_ps(a, c, 0x44);
    x[1] = _mm256_shuffle_ps(a, c, 0xee);
    x[2] = _mm256_shuffle_ps(b, d, 0x44);
    x[3] = _mm256_shuffle_ps(b, d, 0xee);
  }
};

struct F64 {
  typedef double T;
  typedef __m256d V;
  typedef __m256i Bits;
  static constexpr int kLanes = 4, kSums = 12, kCols = 3, kWide = 2, kTurn = 4, kPowers = 0, kBlock = 192;
  static constexpr bool kAcross = false, kRegroups = true;
  template <class>
  static constexpr int kNearKeys = 0;
  template <class>
  static constexpr int kNearValues = 0;

  static V load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(T* p, V x) { _mm256_storeu_pd(p, x); }
  static V set(T x) { return _mm256_set1_pd(x); }
  static V add(V a, V b) { return _mm256_add_pd(a, b); }
  static V sub(V a, V b) { return _mm256_sub_pd(a, b); }
  static V mul(V a, V b) { return _mm256_mul_pd(a, b); }
  static V div(V a, V b) { return _mm256_div_pd(a, b); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
  static V max(V a, V b) { return _mm256_max_pd(a, b); }
  static V select_less(V a, V b, V y, V n) { return _mm256_blendv_pd(n, y, _mm256_cmp_pd(a, b, _CMP_LT_OQ)); }
  static V zero_less(V a, V b, V y) { return _mm256_andnot_pd(_mm256_cmp_pd(a, b, _CMP_LT_OQ), y); }

  // As above, n in [-1022, 1023].
  static V power(V x, T by) { return _mm256_fmadd_pd(x, set(by), set(kShift)); }
  static V number(V power) { return _mm256_sub_pd(power, set(kShift)); }
  static V scale2(V x, V power) {
    return _mm256_mul_pd(x, _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(power), 52)));
  }

  static Bits bits(const uint32_t* p) {
    return _mm256_slli_epi64(_mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 32);
  }
  static Bits shift(Bits b, int n) { return _mm256_sll_epi64(b, _mm_cvtsi32_si128(n)); }
  static Bits next(Bits b) { return _mm256_slli_epi64(b, 1); }
  static V select_top(Bits b, V yes, V no) { return _mm256_blendv_pd(no, yes, _mm256_castsi256_pd(b)); }

  static void load_columns(const double* p, ptrdiff_t row, V (&x)[4]) {
    for (int r = 0; r < 4; ++r) x[r] = load(p + r * row);
    transpose(x);
  }
  static void store_columns(V (&x)[4], T* p, ptrdiff_t row) {
    transpose(x);
    for (int r = 0; r < 4; ++r) store(p + r * row, x[r]);
  }

 private:
  static constexpr T kShift = 6755399441055744.0 + 1023;

  static void transpose(V (&x)[4]) {
    const V a = _mm256_unpacklo_pd(x[0], x[1]), b = _mm256_unpackhi_pd(x[0], x[1]);
    const V c = _mm256_unpacklo_pd(x[2], x[3]), d = _mm256_unpackhi_pd(x[2], x[3]);
    x[0] = _mm256_permute2f128_pd(a, c, 0x20);
    x[1] = _mm256_permute2f128_pd(b, d, 0x20);
    x[2] = _mm256_permute2f128_pd(a, c, 0x31);
    x[3] = _mm256_permute2f128_pd(b, d, 0x31);
  }
};
