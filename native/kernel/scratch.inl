// SPDX-License-Identifier: Apache-2.0
// Memory: sizes and slices come from one list, so they cannot disagree.

// Cuts slices of whole cache lines from one piece of memory, or counts them where there is none yet.
struct Cutter {
  char* base;
  size_t bytes = 0;
  template <class E>
  void operator()(E*& slice, size_t count) {
    slice = base ? reinterpret_cast<E*>(base + bytes) : nullptr;
    bytes += (count * sizeof(E) + 63) / 64 * 64;
  }
};

inline int up_to(int n, int whole) { return (n + whole - 1) / whole * whole; }

// Columns of the output as it is computed: those of v, up to whole vectors.
template <class N>
inline int padded(int dv) {
  return up_to(dv, N::kLanes);
}

// What a block of rows knows of the keys that it has folded: the monoid of online softmax.
template <class N>
struct State {
  typedef typename N::T T;
  T* max;      // [row]
  T* sum;      // [row]
  T* out;      // [row][padded dv], not yet divided
  bool* seen;  // [row]: whether mask and biases keep a key
  State(Cutter& cut, int rows, int dv) {
    cut(max, whole(rows));
    cut(sum, whole(rows));
    cut(out, size_t(rows) * padded<N>(dv));
    cut(seen, whole(rows));
  }
  // Rows up to whole vectors.
  static size_t whole(int rows) { return size_t(padded<N>(rows)); }
};

// What a target with a unit for products of bfloat16 keeps for it: tiled.inl, paired.inl. Others have none.
template <class N>
struct Unit {
  struct Use {
    Use() {}
  };
  static constexpr bool kUse = false, kAsStored = false;
  Unit(Cutter&, int, int, int) {}
};

// One thread's working memory.
template <class N>
struct Scratch {
  typedef typename N::T T;
  static constexpr int kPanel = N::kLanes * N::kCols;  // query rows that one sweep of the registers carries
  static constexpr int kPanels = (N::kBlock + kPanel - 1) / kPanel;

  Cutter cut;
  State<N> total, part;  // of all keys so far, and of one chunk of them
  T* query;              // [panel][d][lane]: the transposed queries
  T* scale;              // [lane]: that of the problem in each
  T* scores;             // [key][lane]: one panel, scores and then weights
  T* shrink;             // [row]: what a fold says of the output so far
  T* grow;               // [row]: and a merge of the output that joins it
  T* key;                // [key][d]: a key tile whose rows cannot be read as they lie
  T* value;              // [key][padded dv], or [group of columns][key][column]: the same of values
  T* contained;          // [key][padded dv]: values with their non-finite elements zeroed
  uint32_t* kept;        // [word][lane]: a bit per key of the tile
  Reach* reach;          // [panel]: what is known of its mask beforehand
  Unit<N> unit;

  Scratch(int tile, int d, int dv, char* base)
      : cut{base}, total(cut, N::kBlock, dv), part(cut, N::kBlock, dv), unit(cut, tile, d, dv) {
    cut(query, size_t(kPanels) * kPanel * d);
    cut(scale, N::kLanes);
    cut(scores, size_t(tile) * kPanel);
    cut(shrink, N::kBlock);
    cut(grow, N::kBlock);
    cut(key, size_t(tile) * d);
    cut(value, size_t(tile) * up_to(dv, N::kWide * N::kLanes));
    cut(contained, size_t(tile) * padded<N>(dv));
    cut(kept, size_t(kTileWords) * kPanel);
    cut(reach, kPanels);
  }
};
