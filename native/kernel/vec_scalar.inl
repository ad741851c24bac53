// SPDX-License-Identifier: Apache-2.0
// One lane, no FMA: the fixed point that the other targets are compared with. Runs everywhere.

struct F32 {
  typedef float T;
  typedef float V;
  static constexpr int kLanes = 1, kRows = 4, kCols = 2;

  static V load(const T* p) { return *p; }
  static void store(T* p, V x) { *p = x; }
  static V set(T x) { return x; }
  static V add(V a, V b) { return a + b; }
  static V sub(V a, V b) { return a - b; }
  static V mul(V a, V b) { return a * b; }
  static V div(V a, V b) { return a / b; }
  static V fma(V a, V b, V c) { return a * b + c; }  // two roundings: contraction is off
  static V max(V a, V b) { return a > b ? a : b; }   // b where either is NaN
  static V round(V x) { return ::rintf(x); }
  // y where a < b, else n; a NaN compares false.
  static V select_less(V a, V b, V y, V n) { return a < b ? y : n; }
  // x * 2^n for integral n in [-126, 127]; outside of it, or for a NaN, x times anything.
  static V scale2(V x, V n) {
    const int32_t e = n >= -126 && n <= 127 ? static_cast<int32_t>(n) : 0;
    const uint32_t bits = static_cast<uint32_t>(e + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x * power;
  }
};
