// SPDX-License-Identifier: Apache-2.0
// AVX-512 F: 16 lanes, 32 registers. 6 x 4 accumulators, 4 columns; the broadcast is a memory operand of the FMA.

struct F32 {
  typedef float T;
  typedef __m512 V;
  static constexpr int kLanes = 16, kRows = 6, kCols = 4;

  static V load(const T* p) { return _mm512_loadu_ps(p); }
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
