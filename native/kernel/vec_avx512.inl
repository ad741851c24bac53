// SPDX-License-Identifier: Apache-2.0
// AVX-512 F: 32 registers. 6 x 4 accumulators, 4 columns; the broadcast is a memory operand of the FMA.

struct F32 {
  typedef float T;
  typedef __m512 V;
  static constexpr int kLanes = 16, kRows = 6, kCols = 4;

  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static V load(const Half* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static V load(const BFloat16* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static void store(T* p, V x) { _mm512_storeu_ps(p, x); }
  static V set(T x) { return _mm512_set1_ps(x); }
  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static V div(V a, V b) { return _mm512_div_ps(a, b); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static V max(V a, V b) { return _mm512_max_ps(a, b); }  // b where either is NaN
  static V round(V x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // y where a < b, else n; a NaN compares false.
  static V select_less(V a, V b, V y, V n) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), n, y); }
  // x * 2^n for integral n.
  static V scale2(V x, V n) { return _mm512_scalef_ps(x, n); }
};

struct F64 {
  typedef double T;
  typedef __m512d V;
  static constexpr int kLanes = 8, kRows = 6, kCols = 4;

  static V load(const double* p) { return _mm512_loadu_pd(p); }
  static void store(T* p, V x) { _mm512_storeu_pd(p, x); }
  static V set(T x) { return _mm512_set1_pd(x); }
  static V add(V a, V b) { return _mm512_add_pd(a, b); }
  static V sub(V a, V b) { return _mm512_sub_pd(a, b); }
  static V mul(V a, V b) { return _mm512_mul_pd(a, b); }
  static V div(V a, V b) { return _mm512_div_pd(a, b); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
  static V max(V a, V b) { return _mm512_max_pd(a, b); }
  static V round(V x) { return _mm512_roundscale_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static V select_less(V a, V b, V y, V n) { return _mm512_mask_blend_pd(_mm512_cmp_pd_mask(a, b, _CMP_LT_OQ), n, y); }
  static V scale2(V x, V n) { return _mm512_scalef_pd(x, n); }
};
