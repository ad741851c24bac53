// SPDX-License-Identifier: Apache-2.0
// NEON of 64-bit ARM: 32 registers. 5 x 4 accumulators, 4 columns, 5 broadcasts: GCC 12 loads all of those first, and
// with 6 rows it spilled three accumulators.

struct F32 {
  typedef float T;
  typedef float32x4_t V;
  static constexpr int kLanes = 4, kRows = 5, kCols = 4;

  static V load(const float* p) { return vld1q_f32(p); }
  static V load(const Half* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&p->bits))); }
  static V load(const BFloat16* p) { return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vld1_u16(&p->bits)), 16)); }
  static void store(T* p, V x) { vst1q_f32(p, x); }
  static V set(T x) { return vdupq_n_f32(x); }
  static V add(V a, V b) { return vaddq_f32(a, b); }
  static V sub(V a, V b) { return vsubq_f32(a, b); }
  static V mul(V a, V b) { return vmulq_f32(a, b); }
  static V div(V a, V b) { return vdivq_f32(a, b); }
  static V fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
  // b where either is NaN: FMAX gives a NaN for any, FMAXNM the number.
  static V max(V a, V b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static V round(V x) { return vrndnq_f32(x); }
  // y where a < b, else n; a NaN compares false.
  static V select_less(V a, V b, V y, V n) { return vbslq_f32(vcltq_f32(a, b), y, n); }
  // x * 2^n for integral n in [-126, 127]: adding 1.5 * 2^23 + 127 leaves the biased exponent in the low bits. A
  // multiplication, so that a NaN stays one whatever n became.
  static V scale2(V x, V n) {
    const uint32x4_t biased = vreinterpretq_u32_f32(vaddq_f32(n, vdupq_n_f32(12583039.0f)));
    return vmulq_f32(x, vreinterpretq_f32_u32(vshlq_n_u32(biased, 23)));
  }
};

struct F64 {
  typedef double T;
  typedef float64x2_t V;
  static constexpr int kLanes = 2, kRows = 5, kCols = 4;

  static V load(const double* p) { return vld1q_f64(p); }
  static void store(T* p, V x) { vst1q_f64(p, x); }
  static V set(T x) { return vdupq_n_f64(x); }
  static V add(V a, V b) { return vaddq_f64(a, b); }
  static V sub(V a, V b) { return vsubq_f64(a, b); }
  static V mul(V a, V b) { return vmulq_f64(a, b); }
  static V div(V a, V b) { return vdivq_f64(a, b); }
  static V fma(V a, V b, V c) { return vfmaq_f64(c, a, b); }
  static V max(V a, V b) { return vbslq_f64(vcgtq_f64(a, b), a, b); }
  static V round(V x) { return vrndnq_f64(x); }
  static V select_less(V a, V b, V y, V n) { return vbslq_f64(vcltq_f64(a, b), y, n); }
  // As above, n in [-1022, 1023] and 1.5 * 2^52 + 1023.
  static V scale2(V x, V n) {
    const uint64x2_t biased = vreinterpretq_u64_f64(vaddq_f64(n, vdupq_n_f64(6755399441056767.0)));
    return vmulq_f64(x, vreinterpretq_f64_u64(vshlq_n_u64(biased, 52)));
  }
};
