// SPDX-License-Identifier: Apache-2.0
// Bounded pieces brought into the order that the products read.

// Rows of contiguous elements: `row` is their distance in elements.
template <class T>
struct Rows {
  const T* data;
  ptrdiff_t row;
  const T* at(int64_t r) const { return data + r * row; }
};

// One row of contiguous elements, widened.
template <class N, class Stored>
inline void widen_row(const Stored* from, int width, typename N::T* to) {
  int c = 0;
  for (; c + N::kLanes <= width; c += N::kLanes) N::store(to + c, N::load(from + c));
  for (; c < width; ++c) to[c] = widen(from[c]);
}

// Rows [first, first + count) of one head: the user's own where they can be read as they lie, else a copy.
template <class N, class Stored>
Rows<typename N::T> pack_rows(const Input& in, int64_t head, int64_t first, int count, int width, typename N::T* copy) {
  typedef typename N::T T;
  const char* from = in.data + in.head[head] + first * in.row;
  const ptrdiff_t size = sizeof(Stored);
  const bool contiguous =
      in.col == size && in.row % size == 0 && reinterpret_cast<uintptr_t>(from) % alignof(Stored) == 0;
  if constexpr (sizeof(Stored) == sizeof(T)) {
    if (contiguous) return {reinterpret_cast<const T*>(from), in.row / size};
  }
  for (int r = 0; r < count; ++r, from += in.row) {
    T* const row = copy + r * ptrdiff_t(width);
    if (contiguous) {
      widen_row<N>(reinterpret_cast<const Stored*>(from), width, row);
      continue;
    }
    for (int c = 0; c < width; ++c) row[c] = widen(load_any<Stored>(from + c * in.col));
  }
  return {copy, width};
}

// Query rows become lanes. Lanes beyond the block's rows are zero: they compute finite numbers that nobody reads.
template <class N, class Stored>
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
    for (int c = 0; c < p.d; ++c) lane[c * kPanel] = widen(load_any<Stored>(from + c * p.query.col));
  }
}
