// SPDX-License-Identifier: Apache-2.0
// One lane, no FMA: the fixed point that the other targets are compared with. Runs everywhere.

template <class Float, class Word, int kMantissa, int kBias>
struct Scalar {
  typedef Float T;
  typedef Float V;
  typedef uint32_t Bits;
  static constexpr int kLanes = 1, kSums = 8, kCols = 2, kWide = 2, kTurn = 4, kPowers = 0, kBlock = 96;
  static constexpr bool kAcross = false, kRegroups = false;
  template <class>
  static constexpr int kNearKeys = 32;
  template <class>
  static constexpr int kNearValues = 8;

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
  // y, or 0, where a < b, else n, or y; a NaN compares false.
  static V select_less(V a, V b, V y, V n) { return a < b ? y : n; }
  static V zero_less(V a, V b, V y) { return a < b ? 0 : y; }

  // An integer n near x * by, in a form that both n and 2^n are read from. Half to even: adding and taking away
  // 1.5 * 2^mantissa leaves no fraction. Larger numbers have none.
  static V power(V x, T by) {
    constexpr V kShift = V(3) * (Word(1) << (kMantissa - 1));
    const V y = x * by, size = y < 0 ? -y : y;
    return size < V(Word(1) << (kMantissa - 1)) ? (y + kShift) - kShift : y;
  }
  static V number(V power) { return power; }
  // x * 2^n for normal 2^n; otherwise, or for a NaN, x times anything.
  static V scale2(V x, V n) {
    const Word e = n > -kBias && n <= kBias ? static_cast<Word>(static_cast<int>(n) + kBias) : kBias;
    return x * bit_cast<V>(e << kMantissa);
  }

  // The bits of a word are asked from the top one down.
  static Bits bits(const uint32_t* p) { return *p; }
  static Bits shift(Bits b, int n) { return b << n; }
  static Bits next(Bits b) { return b << 1; }
  static V select_top(Bits b, V yes, V no) {  // not by a branch: GCC 12 unswitched a loop around one wrongly
    const Word mask = Word(0) - (b >> 31);
    return bit_cast<V>((bit_cast<Word>(yes) & mask) | (bit_cast<Word>(no) & ~mask));
  }

  // Four columns of the one row, and back.
  template <class E>
  static void load_columns(const E* p, ptrdiff_t, V (&x)[4]) {
    for (int c = 0; c < 4; ++c) x[c] = widen(p[c]);
  }
  static void store_columns(V (&x)[4], T* p, ptrdiff_t) {
    for (int c = 0; c < 4; ++c) p[c] = x[c];
  }
};

typedef Scalar<float, uint32_t, 23, 127> F32;
typedef Scalar<double, uint64_t, 52, 1023> F64;
