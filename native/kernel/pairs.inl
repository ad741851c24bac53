// SPDX-License-Identifier: Apache-2.0
// AVX-512 BF16: products of pairs of bfloat16, beside what vec_avx512.inl has. pairs_model.inl has the same interface
// and says what `fma` of pairs computes.

struct Paired : F32 {
  typedef __m512i Pairs;
  static constexpr int kTurn = 4;
  static constexpr bool kAcross = false;
  using F32::fma, F32::load, F32::load_columns, F32::set, F32::store;

  static Pairs load(const Pair* p) { return _mm512_loadu_si512(p); }
  static void store(Pair* p, Pairs x) { _mm512_storeu_si512(p, x); }
  static Pairs set(Pair x) { return _mm512_set1_epi32(bit_cast<int>(x)); }
  // Two steps of a chain.
  static V fma(Pairs a, Pairs b, V c) {
#if defined(__clang__) && __clang_major__ < 18  // which aborts on the intrinsic where a factor is a broadcast
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
#else
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
#endif
  }

  // A pair is turned as a float is.
  static void load_columns(const Pair* p, ptrdiff_t row, Pairs (&x)[4]) {
    V turned[4];
    F32::load_columns(reinterpret_cast<const float*>(p), row, turned);
    for (int i = 0; i < 4; ++i) x[i] = _mm512_castps_si512(turned[i]);
  }

  // The nearest to each, ties to even.
  static Pairs pair(V first, V second) {
    const Pairs both = reinterpret_cast<Pairs>(_mm512_cvtne2ps_pbh(second, first));
    return _mm512_permutexvar_epi16(neighbours(0, 16), both);
  }
  // Of two rows.
  static Pairs pair(const BFloat16* first, const BFloat16* second) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
    return alternate(a, b);
  }
  // The first so many elements of each, then zeros.
  static Pairs pair(const BFloat16* first, int firsts, const BFloat16* second, int seconds) {
    return alternate(_mm256_maskz_loadu_epi16(up_to_bit(firsts), first),
                     _mm256_maskz_loadu_epi16(up_to_bit(seconds), second));
  }

  // Whether all elements are of usual size: 2^-63 <= |x| < 2^65, where the two upper bits of an exponent differ.
  class Usual {
   public:
    void add(Pairs x) { all_ = _mm512_ternarylogic_epi32(all_, x, _mm512_add_epi16(x, x), 0x60); }  // all & (x ^ 2x)
    void add(const Usual& other) { all_ = _mm512_and_si512(all_, other.all_); }
    bool all() const { return _mm512_test_epi16_mask(all_, _mm512_set1_epi16(1 << 14)) == 0xffffffff; }

   private:
    __m512i all_ = _mm512_set1_epi16(-1);
  };

 private:
  // first, second, first + 1, second + 1, ...
  static __m512i neighbours(int first, int second) {
    const __m512i n = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_add_epi32(_mm512_or_si512(n, _mm512_slli_epi32(n, 16)), _mm512_set1_epi32(second << 16 | first));
  }
  static Pairs alternate(__m256i a, __m256i b) {
    return _mm512_permutex2var_epi16(_mm512_castsi256_si512(a), neighbours(0, 32), _mm512_castsi256_si512(b));
  }
  static __mmask16 up_to_bit(int n) { return static_cast<__mmask16>(n >= kLanes ? 0xffff : n > 0 ? (1 << n) - 1 : 0); }
};
