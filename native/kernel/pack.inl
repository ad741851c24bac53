// SPDX-License-Identifier: Apache-2.0
// Bounded pieces brought into the order that the products read.

// Rows of contiguous elements: `row` is their distance in elements.
template <class E>
struct Rows {
  const E* data;
  ptrdiff_t row;
  const E* at(int64_t r) const { return data + r * row; }
};

// Rows of one head as the caller has them, line after line, to be brought near before they are read. Where a line is
// not, nothing happens: so no end is asked for, and addresses are numbers.
class Walk {
 public:
  Walk(uintptr_t first, ptrdiff_t row, ptrdiff_t bytes)
      : at_(first),
        row_(uintptr_t(row)),
        lines_(bytes > 64 ? static_cast<int>((bytes + 63) / 64) : 1),
        left_(lines_),
        gap_(row_ - uintptr_t(lines_) * 64) {}
  Walk from(int row) const {
    Walk walk = *this;
    walk.at_ += uintptr_t(row) * row_;
    return walk;
  }
  // The lines of one row, into the second-level cache.
  void fetch_row() const {
    for (int i = 0; i < lines_; ++i) __builtin_prefetch(reinterpret_cast<const void*>(at_ + uintptr_t(i) * 64), 0, 2);
  }
  // kLocality as of __builtin_prefetch: 3 is the first-level cache, 2 the second.
  template <int kLocality>
  void fetch() {
    __builtin_prefetch(reinterpret_cast<const void*>(at_), 0, kLocality);
    at_ += 64;
    if (--left_ != 0) return;
    at_ += gap_;
    left_ = lines_;
  }

 private:
  uintptr_t at_, row_;
  int lines_, left_;
  uintptr_t gap_;
};

// So many rows on, keys and values, and values that are read in pairs, are asked for again: what was asked for far
// ahead is dropped where memory is busy (experiments/0012).
constexpr int kNearKeys = 32, kNearValues = 8, kNearPairs = 32;

// The keys and values that are read next, during the work on those before. A few lines at a time, since many would wait
// for each other; a line of each at a time, since memory gives more to two streams than to one; into the second-level
// cache, for the first has no room for them.
class Ahead {
 public:
  // Rows of one head, from `row` on.
  Ahead(const Input& key, const Input& value, int64_t head, int64_t row, int d, int dv)
      : key_(walk(key, head, row, d)), value_(walk(value, head, row, dv)) {}

  // As many bytes as each step reads, a line of each at a time.
  template <int kBytes>
  struct Lines {
    Walk key, value;
    int n;
    void operator()() {
      if (kBytes < 128 && ++n % (128 / kBytes) != 0) return;
#pragma GCC unroll 4
      for (int i = 0; i < kBytes; i += 128) {
        key.fetch<2>();
        value.fetch<2>();
      }
    }
  };
  template <int kBytes>
  Lines<kBytes> from(int row) const {
    return {key_.from(row), value_.from(row), 0};
  }

  // The same, and what is read itself, some rows on; so many of these for each step.
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
  template <int kBytes, class B>
  FarAndNear<kBytes, B::kRows> from(int step, const B& read) const {
    const uintptr_t row = uintptr_t(read.row) * sizeof *read.data;
    return {from<kBytes>(B::kRows * step), reinterpret_cast<uintptr_t>(read.data) + B::kNear * row, row};
  }

  // One row of keys and one of values.
  void fetch_rows(int row) const {
    key_.from(row).fetch_row();
    value_.from(row).fetch_row();
  }

 private:
  Walk key_, value_;

  static Walk walk(const Input& in, int64_t head, int64_t row, int width) {
    const uintptr_t first = reinterpret_cast<uintptr_t>(in.data) + uintptr_t(in.head[head]) + uintptr_t(row * in.row);
    return {first, in.row, width * in.col};
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

// A tile's values. `group` elements lie between the first of so many columns, those of a register tile, and the first
// of the next: as many as they are where rows are whole.
template <class N, class E>
struct Values {
  static constexpr int kGroup = N::kWide * N::kLanes;
  Rows<E> rows;
  ptrdiff_t group = kGroup;
  const E* at(int64_t j, int c) const { return rows.at(j) + c / kGroup * group + c % kGroup; }
};

// The same group by group, where each is one piece of memory: [group][row][column]. Columns of values as they lie are
// as many lines, often in few sets of the first-level cache, and in two lines where rows begin within one
// (experiments/0020).
template <class N, class Stored>
Values<N, typename N::T> copy_groups(const Input& in, const char* from, int count, int width, typename N::T* copy) {
  constexpr int kGroup = Values<N, typename N::T>::kGroup;
  const ptrdiff_t group = ptrdiff_t(count) * kGroup;
  const bool contiguous = lies_in_rows<Stored>(in, from);
  for (int r = 0; r < count; ++r, from += in.row) {
    for (int c = 0; c < width; c += kGroup) {
      const int own = width - c < kGroup ? width - c : kGroup;
      typename N::T* const to = copy + c / kGroup * group + r * ptrdiff_t(kGroup);
      if (contiguous) {
        widen_row<N>(reinterpret_cast<const Stored*>(from) + c, own, to);
      } else {
        for (int i = 0; i < own; ++i) to[i] = widen(load_any<Stored>(from + (c + i) * in.col));
      }
      for (int i = own; i < padded<N>(own); ++i) to[i] = 0;
    }
  }
  return {{copy, kGroup}, group};
}

// The same as rows of Row: the user's own where that is `wanted` and they can be read as they lie, else a copy. Rows of
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
