// SPDX-License-Identifier: Apache-2.0
// Element types as they lie in memory, and their way to and from the type that is computed with.

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

// Two neighbours of a sum, as instructions that take two steps of it at once read them.
struct Pair {
  BFloat16 first, second;
};

template <class To, class From>
inline To bit_cast(From x) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}

inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline Pair widen(Pair x) { return x; }
inline float widen(BFloat16 x) { return bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
inline float widen(Half x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;
  if (rest >= 0x7c00) return bit_cast<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);  // Inf, NaN
  // The exponent is rebased by a multiplication, which is exact and normalises the subnormals.
  return bit_cast<float>(sign | bit_cast<uint32_t>(bit_cast<float>(rest << 13) * 0x1p112f));
}

inline void narrow(float x, float& to) { to = x; }
inline void narrow(double x, double& to) { to = x; }
// Round to nearest, ties to even, as IEEE 754 converts; what is too large becomes Inf.
inline void narrow(float x, BFloat16& to) {
  const uint32_t bits = bit_cast<uint32_t>(x);
  to.bits = static_cast<uint16_t>(x != x ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline void narrow(float x, Half& to) {
  const uint32_t bits = bit_cast<uint32_t>(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  uint32_t half;
  if (x != x) {
    half = 0x7e00;
  } else if (size >= 0x477ff000) {  // 65520 and more
    half = 0x7c00;
  } else if (size < 0x38800000) {  // below 2^-14: adding 0.5 aligns the last bit of a subnormal half
    half = bit_cast<uint32_t>(bit_cast<float>(size) + 0.5f) - 0x3f000000;
  } else {
    half = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
  }
  to.bits = static_cast<uint16_t>((x != x ? 0 : sign) | half);
}

template <class Stored>
inline Stored load_any(const char* p) {  // p need not be aligned
  Stored x;
  memcpy(&x, p, sizeof x);
  return x;
}
