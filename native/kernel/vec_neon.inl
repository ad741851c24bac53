// SPDX-License-Identifier: Apache-2.0
// NEON of 64-bit ARM: 32 registers. 5 x 4 accumulators, 4 columns, 5 broadcasts: GCC 12 loads all of those first, and
// with 6 rows it spills accumulators.

struct F32 {
  typedef float T;
  typedef float32x4_t V;
  typedef int32x4_t Bits;
  static constexpr int kLanes = 4, kSums = 20, kCols = 4, kWide = 4, kTurn = 4, kPowers = 0, kBlock = 96;
  static constexpr bool kAcross = false, kRegroups = false;
  template <class>
  static constexpr int kNearKeys = 32;
  template <class>
  static constexpr int kNearValues = 8;

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
  // y, or 0, where a < b, else n, or y; a NaN compares false.
  static V select_less(V a, V b, V y, V n) { return vbslq_f32(vcltq_f32(a, b), y, n); }
  static V zero_less(V a, V b, V y) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y), vcltq_f32(a, b)));
  }

  // An integer n near x * by, for n in [-126, 127], in a form that both n and 2^n are read from: with 1.5 * 2^23 + 127
  // added, the low bits are the biased exponent.
  static V power(V x, T by) { return fma(x, set(by), set(kShift)); }
  static V number(V power) { return sub(power, set(kShift)); }
  // A multiplication, so that a NaN stays one whatever the power became.
  static V scale2(V x, V power) { return mul(x, vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(power), 23))); }

  // One word per lane; the bits are asked from the top one down.
  static Bits bits(const uint32_t* p) { return vreinterpretq_s32_u32(vld1q_u32(p)); }
  static Bits shift(Bits b, int n) { return vshlq_s32(b, vdupq_n_s32(n)); }
  static Bits next(Bits b) { return vshlq_n_s32(b, 1); }
  static V select_top(Bits b, V yes, V no) { return vbslq_f32(vcltzq_s32(b), yes, no); }

  // Four columns of kLanes rows: lane l of x[c] is p[l * row + c]. And back.
  template <class E>
  static void load_columns(const E* p, ptrdiff_t row, V (&x)[4]) {
    for (int r = 0; r < 4; ++r) x[r] = load(p + r * row);
    transpose(x);
  }
  static void store_columns(V (&x)[4], T* p, ptrdiff_t row) {
    transpose(x);
    for (int r = 0; r < 4; ++r) store(p + r * row, x[r]);
  }

 private:
  static constexpr T kShift = 12582912.0f + 127;

  static float64x2_t wide(V x) { return vreinterpretq_f64_f32(x); }
  static void transpose(V (&x)[4]) {
    const float64x2_t a = wide(vtrn1q_f32(x[0], x[1])), b = wide(vtrn2q_f32(x[0], x[1]));
    const float64x2_t c = wide(vtrn1q_f32(x[2], x[3])), d = wide(vtrn2q_f32(x[2], x[3]));
    x[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    x[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    x[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    x[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
  }
};

struct F64 {
  typedef double T;
  typedef float64x2_t V;
  typedef int64x2_t Bits;
  static constexpr int kLanes = 2, kSums = 20, kCols = 4, kWide = 4, kTurn = 4, kPowers = 0, kBlock = 96;
  static constexpr bool kAcross = false, kRegroups = false;
  template <class>
  static constexpr int kNearKeys = 32;
  template <class>
  static constexpr int kNearValues = 8;

  static V load(const double* p) { return vld1q_f64(p); }
  static void store(T* p, V x) { vst1q_f64(p, x); }
  static V set(T x) { return vdupq_n_f64(x); }
  static V add(V a, V b) { return vaddq_f64(a, b); }
  static V sub(V a, V b) { return vsubq_f64(a, b); }
  static V mul(V a, V b) { return vmulq_f64(a, b); }
  static V div(V a, V b) { return vdivq_f64(a, b); }
  static V fma(V a, V b, V c) { return vfmaq_f64(c, a, b); }
  static V max(V a, V b) { return vbslq_f64(vcgtq_f64(a, b), a, b); }
  static V select_less(V a, V b, V y, V n) { return vbslq_f64(vcltq_f64(a, b), y, n); }
  static V zero_less(V a, V b, V y) {
    return vreinterpretq_f64_u64(vbicq_u64(vreinterpretq_u64_f64(y), vcltq_f64(a, b)));
  }

  // As above, n in [-1022, 1023].
  static V power(V x, T by) { return fma(x, set(by), set(kShift)); }
  static V number(V power) { return sub(power, set(kShift)); }
  static V scale2(V x, V power) { return mul(x, vreinterpretq_f64_u64(vshlq_n_u64(vreinterpretq_u64_f64(power), 52))); }

  static Bits bits(const uint32_t* p) { return vreinterpretq_s64_u64(vshlq_n_u64(vmovl_u32(vld1_u32(p)), 32)); }
  static Bits shift(Bits b, int n) { return vshlq_s64(b, vdupq_n_s64(n)); }
  static Bits next(Bits b) { return vshlq_n_s64(b, 1); }
  static V select_top(Bits b, V yes, V no) { return vbslq_f64(vcltzq_s64(b), yes, no); }

  static void load_columns(const double* p, ptrdiff_t row, V (&x)[4]) {
    for (int c = 0; c < 4; c += 2) {
      const V a = load(p + c), b = load(p + row + c);
      x[c] = vtrn1q_f64(a, b);
      x[c + 1] = vtrn2q_f64(a, b);
    }
  }
  static void store_columns(V (&x)[4], T* p, ptrdiff_t row) {
    for (int c = 0; c < 4; c += 2) {
      store(p + c, vtrn1q_f64(x[c], x[c + 1]));
      store(p + row + c, vtrn2q_f64(x[c], x[c + 1]));
    }
  }

 private:
  static constexpr T kShift = 6755399441055744.0 + 1023;
};
