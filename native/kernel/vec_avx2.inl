// SPDX-License-Identifier: Apache-2.0
// AVX2 + FMA + F16C: 16 registers. 6 rows x 2 columns of accumulators leave room for 2 columns and 1 broadcast.

struct F32 {
  typedef float T;
  typedef __m256 V;
  static constexpr int kLanes = 8, kRows = 6, kCols = 2;

  static V load(const float* p) { return _mm256_loadu_ps(p); }
  static V load(const Half* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static V load(const BFloat16* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  static void store(T* p, V x) { _mm256_storeu_ps(p, x); }
  static V set(T x) { return _mm256_set1_ps(x); }
  static V add(V a, V b) { return _mm256_add_ps(a, b); }
  static V sub(V a, V b) { return _mm256_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  static V div(V a, V b) { return _mm256_div_ps(a, b); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static V max(V a, V b) { return _mm256_max_ps(a, b); }  // b where either is NaN
  static V round(V x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // y where a < b, else n; a NaN compares false.
  static V select_less(V a, V b, V y, V n) { return _mm256_blendv_ps(n, y, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
  // x * 2^n for integral n in [-126, 127]. A multiplication, so that a NaN stays one whatever n became.
  static V scale2(V x, V n) {
    const __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(x, _mm256_castsi256_ps(e));
  }
};

struct F64 {
  typedef double T;
  typedef __m256d V;
  static constexpr int kLanes = 4, kRows = 6, kCols = 2;

  static V load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(T* p, V x) { _mm256_storeu_pd(p, x); }
  static V set(T x) { return _mm256_set1_pd(x); }
  static V add(V a, V b) { return _mm256_add_pd(a, b); }
  static V sub(V a, V b) { return _mm256_sub_pd(a, b); }
  static V mul(V a, V b) { return _mm256_mul_pd(a, b); }
  static V div(V a, V b) { return _mm256_div_pd(a, b); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
  static V max(V a, V b) { return _mm256_max_pd(a, b); }
  static V round(V x) { return _mm256_round_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static V select_less(V a, V b, V y, V n) { return _mm256_blendv_pd(n, y, _mm256_cmp_pd(a, b, _CMP_LT_OQ)); }
  // As above, n in [-1022, 1023]: adding 1.5 * 2^52 + 1023 leaves the biased exponent in the low bits.
  static V scale2(V x, V n) {
    const __m256d biased = _mm256_add_pd(n, _mm256_set1_pd(6755399441056767.0));
    return _mm256_mul_pd(x, _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(biased), 52)));
  }
};
