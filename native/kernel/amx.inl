// SPDX-License-Identifier: Apache-2.0
// The tile registers of AMX: eight of 16 rows by 64 bytes. amx_model.inl has the same interface and says what `dot`
// computes.

// In assembly: GCC's intrinsics paste the number of a register into a string, where no template parameter can stand;
// GCC 12's tell the compiler of 8 of the configuration's 64 bytes, so that the others are never written; and none
// says that memory is read.
class Tiles {
 public:
  Tiles() {
    Shape shape{};
    shape.palette = 1;
    for (int t = 0; t < 8; ++t) {
      shape.rows[t] = 16;
      shape.bytes[t] = 64;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(shape));
  }
  ~Tiles() { __asm__ volatile("tilerelease"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  template <int T>
  static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(T));
  }
  // 16 rows of 32 elements, which lie `row` elements apart.
  template <int T>
  static void load(const BFloat16* from, ptrdiff_t row) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(from), "r"(row * ptrdiff_t(sizeof *from)), "i"(T)
                     : "memory");
  }
  template <int T>
  static void store(float* to, ptrdiff_t row) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(row * ptrdiff_t(sizeof *to)), "i"(T) : "memory");
  }
  // C += A B: row k of B holds pairs, of its rows 2k and 2k + 1, column by column.
  template <int C, int A, int B>
  static void dot() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }

 private:
  struct Shape {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  };
  static_assert(sizeof(Shape) == 64, "as ldtilecfg reads it");
};
