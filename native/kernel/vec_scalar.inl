// SPDX-License-Identifier: Apache-2.0
// One lane, no FMA: the fixed point that the other targets are compared with. Runs everywhere.

template <class Float, class Bits, int kMantissa, int kBias>
struct Scalar {
  typedef Float T;
  typedef Float V;
  static constexpr int kLanes = 1, kRows = 4, kCols = 2;

  template <class Stored>
  static V load(const Stored* p) {
    return widen(*p);
  }
  static void store(T* p, V x) { *p = x; }
  static V set(T x) { return x; }
  static V add(V a, V b) { return a + b; }
  static V sub(V a, V b) { return a - b; }
  static V mul(V a, V b) { return a * b; }
  static V div(V a, V b) { return a / b; }
  static V fma(V a, V b, V c) { return a * b + c; }  // two roundings: contraction is off
  static V max(V a, V b) { return a > b ? a : b; }   // b where either is NaN
  // Half to even: adding and taking away 1.5 * 2^mantissa leaves no fraction. Larger numbers have none.
  static V round(V x) {
    constexpr V kShift = V(3) * (Bits(1) << (kMantissa - 1));
    const V size = x < 0 ? -x : x;
    return size < V(Bits(1) << (kMantissa - 1)) ? (x + kShift) - kShift : x;
  }
  // y where a < b, else n; a NaN compares false.
  static V select_less(V a, V b, V y, V n) { return a < b ? y : n; }
  // x * 2^n for integral normal n; otherwise, or for a NaN, x times anything.
  static V scale2(V x, V n) {
    const Bits e = n > -kBias && n <= kBias ? static_cast<Bits>(static_cast<int>(n) + kBias) : kBias;
    return x * bit_cast<V>(e << kMantissa);
  }
};

typedef Scalar<float, uint32_t, 23, 127> F32;
typedef Scalar<double, uint64_t, 52, 1023> F64;
