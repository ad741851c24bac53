// SPDX-License-Identifier: Apache-2.0
// One thread's memory: sizes and slices come from one list, so they cannot disagree.

template <class N>
struct Scratch {
  typedef typename N::T T;
  static constexpr int kPanel = N::kLanes * N::kCols;  // query rows that one sweep of the registers carries
  static_assert(kBlockRows % kPanel == 0, "panels tile the block");

  T* query;        // [panel][d][lane]: the transposed queries
  T* out;          // [panel][dv][lane]: the transposed output, not yet divided
  T* scores;       // [key][lane]: one panel, scores and then weights
  T* max;          // [row]
  T* sum;          // [row]
  T* shrink;       // [lane]: what the last fold says of the output so far
  T* key;          // [key][d]: a key tile whose rows cannot be read as they lie
  T* value;        // [key][dv]: the same of values
  T* contained;    // [key][dv]: values with their non-finite elements zeroed
  int (*runs)[2];  // dropped key ranges of one row
  size_t bytes;

  Scratch(int tile, int d, int dv, char* base) : bytes(0) {
    const auto take = [&](auto*& slice, size_t count) {
      slice = base ? reinterpret_cast<typename Plain<decltype(slice)>::type>(base + bytes) : nullptr;
      bytes += (count * sizeof(*slice) + 63) / 64 * 64;
    };
    take(query, size_t(kBlockRows) * d);
    take(out, size_t(kBlockRows) * dv);
    take(scores, size_t(tile) * kPanel);
    take(max, kBlockRows);
    take(sum, kBlockRows);
    take(shrink, kPanel);
    take(key, size_t(tile) * d);
    take(value, size_t(tile) * dv);
    take(contained, size_t(tile) * dv);
    take(runs, size_t(tile) / 2 + 1);
  }

 private:
  template <class P>
  struct Plain {
    typedef P type;
  };
  template <class P>
  struct Plain<P&> {
    typedef P type;
  };
};
