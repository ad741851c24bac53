// SPDX-License-Identifier: Apache-2.0
// AVX2 + FMA: 8 lanes, 16 registers. 6 rows x 2 columns of accumulators leave room for 2 columns and 1 broadcast.

struct F32 {
  typedef float T;
  typedef __m256 V;
  static constexpr int kLanes = 8, kRows = 6, kCols = 2;

  static V load(const T* p) { return _mm256_loadu_ps(p); }
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
