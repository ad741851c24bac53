// SPDX-License-Identifier: Apache-2.0
// The tile registers in plain C++, for machines that have none: the interface of amx.inl, and the bits of its
// instruction as far as they are known.

// tdpbf16ps as its maker's manual describes it, Bochs emulates it, and 5,120,000 results of a machine were: of each
// element, one chain of FMA over the even k and one over the odd, both from zero, rounded to nearest; their sum is then
// added to C. Subnormals count as zero wherever they go in or come out: of this, manual and Bochs tell, and no machine
// was asked. A result that is rounded up to the smallest normal number is kept here, which may be otherwise there.
class Tiles {
 public:
  Tiles() { registers().configured = true; }
  ~Tiles() { registers().configured = false; }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  template <int T>
  static void zero() {
    memset(tile<T>(), 0, 1024);
  }
  // 16 rows of 32 elements, which lie `row` elements apart.
  template <int T>
  static void load(const BFloat16* from, ptrdiff_t row) {
    for (int r = 0; r < 16; ++r) memcpy(tile<T>() + 64 * r, from + r * row, 64);
  }
  template <int T>
  static void store(float* to, ptrdiff_t row) {
    for (int r = 0; r < 16; ++r) memcpy(to + r * row, tile<T>() + 64 * r, 64);
  }
  // C += A B: row k of B holds pairs, of its rows 2k and 2k + 1, column by column.
  template <int C, int A, int B>
  static void dot() {
    float c[16 * 16], even[16 * 16] = {}, odd[16 * 16] = {}, b[2][16];
    BFloat16 left[16 * 32], right[16 * 32];
    memcpy(c, tile<C>(), sizeof c);
    memcpy(left, tile<A>(), sizeof left);
    memcpy(right, tile<B>(), sizeof right);
    for (int k = 0; k < 16; ++k) {
      for (int n = 0; n < 16; ++n) {
        b[0][n] = flush(widen(right[32 * k + 2 * n]));
        b[1][n] = flush(widen(right[32 * k + 2 * n + 1]));
      }
      for (int m = 0; m < 16; ++m) {
        const float first = flush(widen(left[32 * m + 2 * k])), second = flush(widen(left[32 * m + 2 * k + 1]));
        for (int n = 0; n < 16; ++n) {
          even[16 * m + n] = flush(__builtin_fmaf(first, b[0][n], even[16 * m + n]));
          odd[16 * m + n] = flush(__builtin_fmaf(second, b[1][n], odd[16 * m + n]));
        }
      }
    }
    for (int i = 0; i < 16 * 16; ++i) c[i] = flush(flush(c[i]) + flush(even[i] + odd[i]));
    memcpy(tile<C>(), c, sizeof c);
  }

 private:
  static float flush(float x) {
    const uint32_t bits = bit_cast<uint32_t>(x);
    return bit_cast<float>(bits & 0x7f800000 ? bits : bits & 0x80000000);
  }

  struct Registers {
    bool configured;
    char tile[8][1024];
  };
  static Registers& registers() {
    static thread_local Registers r;
    return r;
  }
  template <int T>
  static char* tile() {
    if (!registers().configured) __builtin_trap();  // as the machine does
    return registers().tile[T];
  }
};
