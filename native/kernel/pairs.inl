// SPDX-License-Identifier: Apache-2.0
// AVX-512 BF16: products of pairs of bfloat16, beside what vec_avx512.inl has. pairs_model.inl has the same interface
// and says what `fma` of pairs computes.

struct Paired : F32 {
  typedef __m512bh Pairs;
  using F32::fma, F32::load, F32::load_columns, F32::set, F32::store;

  static Pairs load(const Pair* p) { return of(_mm512_loadu_si512(p)); }
  static void store(Pair* p, Pairs x) { _mm512_storeu_si512(p, words(x)); }
  static Pairs set(Pair x) { return of(_mm512_set1_epi32(bit_cast<int>(x))); }
  // Two steps of a chain.
  static V fma(Pairs a, Pairs b, V c) { return _mm512_dpbf16_ps(c, a, b); }

  // A pair is turned as a float is.
  static void load_columns(const Pair* p, ptrdiff_t row, Pairs (&x)[4]) {
    V turned[4];
    F32::load_columns(reinterpret_cast<const float*>(p), row, turned);
    for (int i = 0; i < 4; ++i) x[i] = of(_mm512_castps_si512(turned[i]));
  }

  // The nearest to each, ties to even.
  static Pairs pair(V first, V second) {
    return of(_mm512_permutexvar_epi16(neighbours(0, 16), words(_mm512_cvtne2ps_pbh(second, first))));
  }
  // 2 kLanes elements of two rows.
  static void pair(const BFloat16* first, const BFloat16* second, Pairs (&x)[2]) {
    const __m512i a = _mm512_loadu_si512(first), b = _mm512_loadu_si512(second);
    x[0] = of(_mm512_permutex2var_epi16(a, neighbours(0, 32), b));
    x[1] = of(_mm512_permutex2var_epi16(a, neighbours(16, 48), b));
  }

  // The bits of the largest element and of the smallest that is not zero, whatever their signs; NaN is largest.
  class Sizes {
   public:
    void add(Pairs x) {
      const __m512i twice = _mm512_add_epi16(words(x), words(x));
      most_ = _mm512_max_epu16(most_, twice);
      least_ = _mm512_min_epu16(least_, _mm512_sub_epi16(twice, _mm512_set1_epi16(1)));  // 0 - 1 is large
    }
    bool at_most(BFloat16 x) const { return !_mm512_cmpgt_epu16_mask(most_, _mm512_set1_epi16(short(2 * x.bits))); }
    bool at_least(BFloat16 x) const {
      return !_mm512_cmplt_epu16_mask(least_, _mm512_set1_epi16(short(2 * x.bits - 1)));
    }

   private:
    __m512i most_ = _mm512_setzero_si512(), least_ = _mm512_set1_epi16(-1);
  };

 private:
  static Pairs of(__m512i x) { return reinterpret_cast<Pairs>(x); }
  static __m512i words(Pairs x) { return reinterpret_cast<__m512i>(x); }
  // first, second, first + 1, second + 1, ...
  static __m512i neighbours(int first, int second) {
    const __m512i n = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_add_epi32(_mm512_or_si512(n, _mm512_slli_epi32(n, 16)), _mm512_set1_epi32(second << 16 | first));
  }
};
