// SPDX-License-Identifier: Apache-2.0
// Bounded pieces brought into the order that the products read.

// Rows of contiguous elements: `row` is their distance in elements.
template <class E>
struct Rows {
  const E* data;
  ptrdiff_t row;
  const E* at(int64_t r) const { return data + r * row; }
};

// Rows to be brought near while others are worked on, line by line: many at once would wait for each other.
class Ahead {
 public:
  template <class E>
  Ahead(const Rows<E>& rows, int width, int64_t begin, int64_t end)
      : at_(reinterpret_cast<const char*>(rows.at(begin))),
        row_(rows.row * ptrdiff_t(sizeof(E))),
        lines_((width * ptrdiff_t(sizeof(E)) + 63) / 64),
        left_(end - begin) {
    if (row_ == lines_ * 64 && left_ > 0) {  // no gaps: all of it is one row
      lines_ *= left_;
      left_ = 1;
    }
    ahead_ = left_ > 0 ? lines_ : 0;
  }
  // Lines that are due in each of so many steps.
  int share(int64_t steps) const {
    const int64_t lines = left_ > 0 ? lines_ * left_ : 0;
    return steps > 0 ? static_cast<int>((lines + steps - 1) / steps) : 0;
  }
  void fetch(int lines) {
    for (; lines > ahead_; ahead_ = lines_) {
      lines -= static_cast<int>(ahead_);
      prefetch(ahead_);
      ahead_ = 0;
      if (left_ <= 1) return;
      --left_;
      at_ += row_ - lines_ * 64;
    }
    prefetch(lines);
    ahead_ -= lines;
  }

 private:
  const char* at_;
  ptrdiff_t row_, lines_;  // from row to row, and of one row
  int64_t left_, ahead_;   // rows, this one too, and lines of this one

  void prefetch(int64_t lines) {
    for (; lines > 0; --lines, at_ += 64) __builtin_prefetch(at_);
  }
};

// Whether rows of E, from this place on, can be read as they lie.
template <class E, class Byte>
inline bool lies_in_rows(const Strided<Byte>& in, const char* from) {
  const ptrdiff_t size = sizeof(E);
  return in.col == size && in.row % size == 0 && reinterpret_cast<uintptr_t>(from) % alignof(E) == 0;
}

// One row of contiguous elements, widened.
template <class N, class Stored>
inline void widen_row(const Stored* from, int width, typename N::T* to) {
  int c = 0;
  for (; c + N::kLanes <= width; c += N::kLanes) N::store(to + c, N::load(from + c));
  for (; c < width; ++c) to[c] = widen(from[c]);
}

// Rows [first, first + count) of one head, widened, `room` columns apart, with zeros in those beyond `width`.
template <class N, class Stored>
Rows<typename N::T> copy_rows(const Input& in, const char* from, int count, int width, int room, typename N::T* copy) {
  const bool contiguous = lies_in_rows<Stored>(in, from);
  for (int r = 0; r < count; ++r, from += in.row) {
    typename N::T* const row = copy + r * ptrdiff_t(room);
    if (contiguous) {
      widen_row<N>(reinterpret_cast<const Stored*>(from), width, row);
    } else {
      for (int c = 0; c < width; ++c) row[c] = widen(load_any<Stored>(from + c * in.col));
    }
    for (int c = width; c < room; ++c) row[c] = 0;
  }
  return {copy, room};
}

// The same as rows of Row: the user's own where they can be read as they lie, in whole vectors, else a copy. Rows of a
// stored type that is not computed with are the user's own: whoever asks for them has looked.
template <class N, class Stored, class Row>
Rows<Row> take_rows(const Input& in, int64_t head, int64_t first, int count, int width, int room, typename N::T* copy) {
  constexpr ptrdiff_t kSize = sizeof(Row);
  const char* from = in.data + in.head[head] + first * in.row;
  if constexpr (sizeof(Row) < sizeof(typename N::T)) {
    return {reinterpret_cast<const Row*>(from), in.row / kSize};
  } else {
    if (sizeof(Stored) == sizeof(Row) && width == room && lies_in_rows<Stored>(in, from)) {
      return {reinterpret_cast<const Row*>(from), in.row / kSize};
    }
    return copy_rows<N, Stored>(in, from, count, width, room, copy);
  }
}

// The rows of a panel: `count` rows of the block, from its row `first`.
struct Panel {
  const Problem& p;
  const Block& block;
  int first, count;
  int64_t head(int r) const { return block.head[first + r]; }
  int64_t query(int r) const { return block.query[first + r]; }
};

// Where row r of a panel begins in an array over (head, query).
template <class Byte>
inline Byte* row_of(const Strided<Byte>& a, const Panel& panel, int r) {
  return a.data + a.head[panel.head(r)] + panel.query(r) * a.row;
}

// Rows [begin, begin + n) of a panel if they hold contiguous E at one distance from each other; else null.
template <class E>
inline const E* even_rows(const Input& a, const Panel& panel, int begin, int n, ptrdiff_t& row) {
  if (begin + n > panel.count) return nullptr;
  const char* const from = row_of(a, panel, begin);
  const ptrdiff_t step = n > 1 ? row_of(a, panel, begin + 1) - from : 0;
  const ptrdiff_t size = sizeof(E);
  if (a.col != size || step % size != 0 || reinterpret_cast<uintptr_t>(from) % alignof(E) != 0) return nullptr;
  for (int r = 2; r < n; ++r) {
    if (row_of(a, panel, begin + r) - from != r * step) return nullptr;
  }
  row = step / size;
  return reinterpret_cast<const E*>(from);
}

// Query rows become lanes: [d][lane] of one panel. Lanes beyond its rows are zero: they compute finite numbers that
// nobody reads.
template <class N, class Stored>
void pack_panel(const Panel& panel, typename N::T* to) {
  typedef typename N::T T;
  constexpr int kPanel = Scratch<N>::kPanel;
  const Problem& p = panel.p;
  for (int l = 0; l < kPanel; l += N::kLanes) {
    ptrdiff_t row = 0;
    const Stored* const from = even_rows<Stored>(p.query, panel, l, N::kLanes, row);
    int c = 0;
    for (; from && c + 4 <= p.d; c += 4) {
      typename N::V column[4];
      N::load_columns(from + c, row, column);
      for (int i = 0; i < 4; ++i) N::store(to + ptrdiff_t(c + i) * kPanel + l, column[i]);
    }
    for (; c < p.d; ++c) {
      for (int r = l; r < l + N::kLanes; ++r) {
        T& lane = to[ptrdiff_t(c) * kPanel + r];
        lane = r < panel.count ? widen(load_any<Stored>(row_of(p.query, panel, r) + c * p.query.col)) : T(0);
      }
    }
  }
}
