// SPDX-License-Identifier: Apache-2.0
// Bounded pieces brought into the order that the products read.

// Rows of contiguous elements: `row` is their distance in elements.
template <class T>
struct Rows {
  const T* data;
  ptrdiff_t row;
  const T* at(int64_t r) const { return data + r * row; }
};

template <class T>
inline T load_any(const char* p) {  // p need not be aligned
  T x;
  memcpy(&x, p, sizeof x);
  return x;
}

// Rows [first, first + count) of one head: the user's own where its elements are contiguous and aligned, else a copy.
template <class T>
Rows<T> pack_rows(const Input& in, int64_t head, int64_t first, int count, int width, T* copy) {
  const char* from = in.data + in.head[head] + first * in.row;
  const bool in_place =
      in.col == sizeof(T) && in.row % sizeof(T) == 0 && reinterpret_cast<uintptr_t>(from) % alignof(T) == 0;
  if (in_place) return {reinterpret_cast<const T*>(from), in.row / static_cast<ptrdiff_t>(sizeof(T))};
  for (int r = 0; r < count; ++r) {
    for (int c = 0; c < width; ++c) copy[r * ptrdiff_t(width) + c] = load_any<T>(from + r * in.row + c * in.col);
  }
  return {copy, width};
}

// Query rows become lanes. Lanes beyond the block's rows are zero: they compute finite numbers that nobody reads.
template <class N>
void pack_queries(const Problem& p, const Block& block, typename N::T* to) {
  typedef typename N::T T;
  constexpr int kPanel = Scratch<N>::kPanel;
  for (int r = 0; r < (block.rows + kPanel - 1) / kPanel * kPanel; ++r) {
    T* lane = to + ptrdiff_t(r / kPanel) * p.d * kPanel + r % kPanel;
    if (r >= block.rows) {
      for (int c = 0; c < p.d; ++c) lane[c * kPanel] = 0;
      continue;
    }
    const char* from = p.query.data + p.query.head[block.head[r]] + block.query[r] * p.query.row;
    for (int c = 0; c < p.d; ++c) lane[c * kPanel] = load_any<T>(from + c * p.query.col);
  }
}
