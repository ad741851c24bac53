// SPDX-License-Identifier: Apache-2.0
// Bounded pieces brought into the order that the products read.

// Rows of contiguous elements: `row` is their distance in elements.
template <class E>
struct Rows {
  const E* data;
  ptrdiff_t row;
  const E* at(int64_t r) const { return data + r * row; }
};

// Lines of a row that is brought near before it is read. Where a line is not, nothing happens: so no end is asked for,
// and addresses are numbers.
inline int lines_of(ptrdiff_t bytes) { return bytes > 64 ? static_cast<int>((bytes + 63) / 64) : 1; }

// The keys and values that are read next, during the work on those before. A few lines at a time, since many would wait
// for each other; a line of each at a time, since memory gives more to two streams than to one; into the second-level
// cache, for the first has no room for them.
class Ahead {
 public:
  // Rows of one head, from `row` on.
  Ahead(const Input& key, const Input& value, int64_t head, int64_t row, int d, int dv)
      : key_(first(key, head, row)),
        value_(first(value, head, row)),
        key_row_(uintptr_t(key.row)),
        value_row_(uintptr_t(value.row)),
        lines_(lines_of(d * key.col > dv * value.col ? d * key.col : dv * value.col)) {}

  // As many bytes as each step reads, a line of each at a time: both walk as many lines of a row as the longer one has.
  template <int kBytes>
  struct Lines {
    uintptr_t key, value, key_gap, value_gap;
    int lines, left, n;
    void operator()() {
      if (kBytes < 128 && ++n % (128 / kBytes) != 0) return;
#pragma GCC unroll 4
      for (int i = 0; i < kBytes; i += 128) {
        __builtin_prefetch(reinterpret_cast<const void*>(key), 0, 2);
        __builtin_prefetch(reinterpret_cast<const void*>(value), 0, 2);
        key += 64;
        value += 64;
        if (--left != 0) continue;
        key += key_gap;
        value += value_gap;
        left = lines;
      }
    }
  };
  template <int kBytes>
  Lines<kBytes> from(int row) const {
    const uintptr_t walked = uintptr_t(lines_) * 64;
    return {key_ + uintptr_t(row) * key_row_,
            value_ + uintptr_t(row) * value_row_,
            key_row_ - walked,
            value_row_ - walked,
            lines_,
            lines_,
            0};
  }

  // The same, and what is read itself, kNear rows on, of which each step reads kRows: what was asked for far ahead is
  // dropped where memory is busy (experiments/0012). With kNear 0 it is not asked for again (experiments/0026).
  template <int kBytes, int kRows>
  struct FarAndNear {
    Lines<kBytes> far;
    uintptr_t near, row;
    void operator()() {
      far();
      for (int r = 0; r < kRows; ++r, near += row) {
#pragma GCC unroll 8
        for (int i = 0; i < kBytes / kRows; i += 64) {
          __builtin_prefetch(reinterpret_cast<const void*>(near + uintptr_t(i)));
        }
      }
    }
  };
  template <int kBytes, int kNear, class B>
  auto from(int step, const B& read) const {
    const Lines<kBytes> far = from<kBytes>(B::kRows * step);
    const uintptr_t row = uintptr_t(read.row) * sizeof *read.data;
    if constexpr (kNear > 0) {
      return FarAndNear<kBytes, B::kRows>{far, reinterpret_cast<uintptr_t>(read.data) + kNear * row, row};
    } else {
      return far;
    }
  }

 private:
  uintptr_t key_, value_, key_row_, value_row_;
  int lines_;

  static uintptr_t first(const Input& in, int64_t head, int64_t row) {
    return reinterpret_cast<uintptr_t>(in.data) + uintptr_t(in.head[head]) + uintptr_t(row * in.row);
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

// One row, widened, with zeros from its `width` columns up to `room`.
template <class N, class Stored>
inline void copy_row(const char* from, ptrdiff_t col, bool contiguous, int width, int room, typename N::T* to) {
  if (contiguous) {
    widen_row<N>(reinterpret_cast<const Stored*>(from), width, to);
  } else {
    for (int c = 0; c < width; ++c) to[c] = widen(load_any<Stored>(from + c * col));
  }
  for (int c = width; c < room; ++c) to[c] = 0;
}

// Rows of one head from `from` on, widened, `room` columns apart.
template <class N, class Stored>
Rows<typename N::T> copy_rows(const Input& in, const char* from, int count, int width, int room, typename N::T* copy) {
  const bool contiguous = lies_in_rows<Stored>(in, from);
  for (int r = 0; r < count; ++r, from += in.row) {
    copy_row<N, Stored>(from, in.col, contiguous, width, room, copy + r * ptrdiff_t(room));
  }
  return {copy, room};
}

// Rows as rows of Row: the user's own where that is `wanted` and they can be read as they lie, else a copy. Rows of
// a stored type that is not computed with are the user's own: whoever asks for them has looked.
template <class N, class Stored, class Row>
Rows<Row> take_rows(const Input& in, int64_t head, int64_t first, int count, int width, int room, bool wanted,
                    typename N::T* copy) {
  constexpr ptrdiff_t kSize = sizeof(Row);
  const char* from = in.data + in.head[head] + first * in.row;
  if constexpr (sizeof(Row) < sizeof(typename N::T)) {
    return {reinterpret_cast<const Row*>(from), in.row / kSize};
  } else {
    if (sizeof(Stored) == sizeof(Row) && wanted && lies_in_rows<Stored>(in, from)) {
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

// A block of one panel reads each line once: it waits for memory rather than for products.
template <class N>
inline bool reads_once(const Panel& panel) {
  return panel.block.rows <= Scratch<N>::kPanel;
}

// A tile's values. `group` elements lie between the first of so many columns, those of a register tile, and the first
// of the next: as many as they are where rows are whole.
template <class N, class E>
struct Values {
  static constexpr int kGroup = N::kWide * N::kLanes;
  Rows<E> rows;
  ptrdiff_t group = kGroup;
  const E* at(int64_t j, int c) const { return rows.at(j) + c / kGroup * group + c % kGroup; }
};

// Rows of one head from `from` on, widened, group by group: [group][row][column]. Columns of rows as they lie are as
// many lines, often in few sets of the first-level cache, and halves of vectors in two lines where rows begin within
// one (experiments/0020).
template <class N, class Stored>
Values<N, typename N::T> copy_groups(const Input& in, const char* from, int count, int width, typename N::T* copy) {
  constexpr int kGroup = Values<N, typename N::T>::kGroup;
  const ptrdiff_t group = ptrdiff_t(count) * kGroup;
  const bool contiguous = lies_in_rows<Stored>(in, from);
  for (int r = 0; r < count; ++r, from += in.row) {
    typename N::T* to = copy + r * ptrdiff_t(kGroup);
    int c = 0;
    for (; contiguous && c + kGroup <= width; c += kGroup, to += group) {
      widen_row<N>(reinterpret_cast<const Stored*>(from) + c, kGroup, to);
    }
    for (; c < width; c += kGroup, to += group) {
      const int own = width - c < kGroup ? width - c : kGroup;
      copy_row<N, Stored>(from + c * in.col, in.col, contiguous, own, padded<N>(own), to);
    }
  }
  return {{copy, kGroup}, group};
}

// Lines of rows so many bytes apart lie in every fourth set of a first-level cache, which has 64 sets of 8 ways, and a
// column of a tile is 96 lines. Those of rows that crowd it lie in every eighth.
constexpr ptrdiff_t kLinesApart = 256, kCrowded = 512;

// The tile's values, in groups where that is worth a copy: each is read once by every six queries. Those of rows that
// crowd a cache are copied for two panels, others whose lines are apart for more than four (experiments/0018, 0020).
template <class N, class Stored, class Row>
Values<N, Row> take_values(const Panel& panel, int64_t first, int count, typename N::T* copy) {
  const Problem& p = panel.p;
  const int64_t head = panel.head(0);
  const bool whole = padded<N>(p.dv) == p.dv;
  if constexpr (N::kRegroups && !Unit<N>::kUse && sizeof(Row) == sizeof(typename N::T)) {
    const ptrdiff_t row = p.value.row;
    const char* const from = p.value.data + p.value.head[head] + first * row;
    const bool lies = sizeof(Stored) == sizeof(Row) && whole && lies_in_rows<Stored>(p.value, from);
    const bool close = -kLinesApart < row && row < kLinesApart, crowded = row % kCrowded == 0;
    const bool many = panel.block.rows > 4 * Scratch<N>::kPanel;
    if (!reads_once<N>(panel) && (!lies || (!close && (crowded || many)))) {
      return copy_groups<N, Stored>(p.value, from, count, p.dv, copy);
    }
  }
  return {take_rows<N, Stored, Row>(p.value, head, first, count, p.dv, padded<N>(p.dv), whole, copy)};
}

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

// Query rows become lanes: [d][lane] of one panel, in as many vectors as hold them. Lanes beyond its rows are zero:
// they compute finite numbers that nobody reads.
template <class N, class Stored>
void pack_panel(const Panel& panel, typename N::T* to) {
  constexpr int kPanel = Scratch<N>::kPanel;
  const Problem& p = panel.p;
  const int lanes = Unit<N>::kUse ? kPanel : padded<N>(panel.count);  // a unit takes all lanes
  for (int l = 0; l < lanes; l += N::kLanes) {
    ptrdiff_t row = 0;
    const Stored* const from = even_rows<Stored>(p.query, panel, l, N::kLanes, row);
    int c = 0;
    for (; from && c + 4 <= p.d; c += 4) {
      typename N::V column[4];
      N::load_columns(from + c, row, column);
      for (int i = 0; i < 4; ++i) N::store(to + ptrdiff_t(c + i) * kPanel + l, column[i]);
    }
    for (int i = c; i < p.d; ++i) N::store(to + ptrdiff_t(i) * kPanel + l, N::set(0));
    for (int r = l; r < l + N::kLanes && r < panel.count; ++r) {
      const char* const row = row_of(p.query, panel, r);
      for (int i = c; i < p.d; ++i) to[ptrdiff_t(i) * kPanel + r] = widen(load_any<Stored>(row + i * p.query.col));
    }
  }
}
