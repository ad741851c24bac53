// SPDX-License-Identifier: Apache-2.0
// Python's arrays as the engine's views: where they lie, where their heads begin, and what a band of a mask keeps.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "regard/view.h"

namespace nb = nanobind;

namespace regard {

// A buffer that stays alive as long as its owner; any strides, readable or writable.
class Buffer {
 public:
  Buffer(nb::handle array, bool writable) {
    const int flags = PyBUF_STRIDES | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(array.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  // A contiguous buffer of elements of one size, as the native side is going to read it.
  Buffer(nb::handle array, bool writable, Py_ssize_t itemsize) : Buffer(array, writable) {
    if (view_.itemsize != itemsize || !PyBuffer_IsContiguous(&view_, 'C')) {
      throw std::invalid_argument("regard._native: a table of another dtype or order");
    }
  }
  Buffer(Buffer&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }

  char* data() const { return static_cast<char*>(view_.buf); }
  const Py_buffer& view() const { return view_; }

 private:
  Py_buffer view_;
};

// The heads of a call, all batch entries: sizes of the leading axes and of the axis of query heads.
using Grid = std::vector<int64_t>;

// Byte offset of each head of an array, in C order over the grid: leading axes of size 1, or missing ones, are
// broadcast, and `group` query heads share a head of the array's. `sizes` and `strides` are those of the array's axes
// before row and column.
inline std::vector<int64_t> place_heads(const Py_ssize_t* sizes, const Py_ssize_t* strides, size_t axes,
                                        const Grid& grid, int64_t group) {
  size_t total = 1;
  for (const int64_t size : grid) total *= static_cast<size_t>(size);
  std::vector<int64_t> offsets(total);
  if (total == 0) return offsets;
  const size_t missing = grid.size() - axes;
  size_t count = 1;  // offsets found so far, of the axes so far; they are spread from the last to the first
  for (size_t axis = missing; axis < grid.size(); ++axis) {
    const int64_t stride = sizes[axis - missing] == 1 ? 0 : strides[axis - missing];
    const size_t size = static_cast<size_t>(grid[axis]);
    const size_t share = axis + 1 == grid.size() ? static_cast<size_t>(group) : 1;
    for (size_t n = count; n-- > 0;) {
      const int64_t from = offsets[n];
      for (size_t i = size / share; i-- > 0;) {
        std::fill_n(&offsets[n * size + i * share], share, from + static_cast<int64_t>(i) * stride);
      }
    }
    count *= size;
  }
  for (size_t n = count; n < total; ++n) offsets[n] = offsets[n - count];
  return offsets;
}

// The 64-bit numbers of a contiguous buffer.
inline std::vector<int64_t> numbers_of(nb::handle array) {
  const Buffer buffer(array, false, sizeof(int64_t));
  const int64_t* first = reinterpret_cast<const int64_t*>(buffer.data());
  return {first, first + buffer.view().len / static_cast<Py_ssize_t>(sizeof(int64_t))};
}

// An array with the place of each of its heads: what view.h calls Strided.
class View {
 public:
  View(nb::handle array, nb::handle heads, ptrdiff_t row, ptrdiff_t col, bool writable)
      : array_(array, writable), heads_(numbers_of(heads)), row_(row), col_(col) {}

  // An array laid over the scores: an axis of size 1 serves all of its rows, or all of its keys. `heads` are the
  // numbers of those to take, None for all.
  static View over(nb::handle array, const Grid& grid, nb::handle heads) {
    View view(array);
    const Py_buffer& b = view.array_.view();
    const size_t axes = static_cast<size_t>(b.ndim) - 2;
    view.heads_ = place_heads(b.shape, b.strides, axes, grid, 1);
    view.take(heads);
    view.row_ = b.shape[axes] == 1 ? 0 : b.strides[axes];
    view.col_ = b.shape[axes + 1] == 1 ? 0 : b.strides[axes + 1];
    return view;
  }

  // Numbers along the last axis laid along the diagonals: query i and key j find theirs at start + j - i. There is one
  // start for all batch entries, or one for each.
  static View along(nb::handle array, const Grid& grid, const std::vector<int64_t>& starts, nb::handle heads) {
    View view(array);
    const Py_buffer& b = view.array_.view();
    const size_t axes = static_cast<size_t>(b.ndim) - 1;
    view.col_ = b.strides[axes];
    view.row_ = -view.col_;
    view.heads_ = place_heads(b.shape, b.strides, axes, grid, 1);
    for (size_t n = 0; n < view.heads_.size(); ++n) {
      const size_t entry = starts.size() == 1 ? 0 : n / static_cast<size_t>(grid.back());
      view.heads_[n] += starts[entry] * view.col_;
    }
    view.take(heads);
    return view;
  }

  Input input() const { return {array_.data(), heads_.data(), row_, col_}; }
  Output output() const { return {array_.data(), heads_.data(), row_, col_}; }

 private:
  explicit View(nb::handle array) : array_(array, false), row_(0), col_(0) {}

  void take(nb::handle heads) {
    if (heads.is_none()) return;
    std::vector<int64_t> taken = numbers_of(heads);
    for (int64_t& head : taken) head = heads_[static_cast<size_t>(head)];
    heads_ = std::move(taken);
  }

  Buffer array_;
  std::vector<int64_t> heads_;
  ptrdiff_t row_, col_;
};

struct Sizes {
  int64_t heads, queries, keys;
  int d, dv;
};

// An array of a call, its last two axes row and column, whose heads lie where its own strides put them.
class Operand {
 public:
  Operand(nb::handle array, const Grid& grid, int64_t group, bool writable) : array_(array, writable) {
    const Py_buffer& b = array_.view();
    const size_t axes = static_cast<size_t>(b.ndim) - 2;
    heads_ = place_heads(b.shape, b.strides, axes, grid, group);
    row_ = b.strides[axes];
    col_ = b.strides[axes + 1];
  }

  Input input() const { return {array_.data(), heads_.data(), row_, col_}; }
  Output output() const { return {array_.data(), heads_.data(), row_, col_}; }
  int64_t heads() const { return static_cast<int64_t>(heads_.size()); }
  int64_t rows() const { return array_.view().shape[array_.view().ndim - 2]; }
  int cols() const { return static_cast<int>(array_.view().shape[array_.view().ndim - 1]); }

 private:
  Buffer array_;
  std::vector<int64_t> heads_;
  ptrdiff_t row_, col_;
};

// What the query rows [begin, end) keep.
class Band {
 public:
  Band(int kind, const View* rows, int width, int64_t begin, int64_t end)
      : begin(begin), end(end), kind_(kind), width_(width), rows_(rows) {}

  // Spans that all rows of all heads keep, by their edges.
  static Band alike(std::vector<int64_t> edges, int64_t heads, int64_t begin, int64_t end) {
    Band band(Mask::kSpans, nullptr, static_cast<int>(edges.size() / 2), begin, end);
    band.edges_ = std::move(edges);
    band.heads_.resize(static_cast<size_t>(heads));
    return band;
  }

  Mask mask() const {
    const Input own{reinterpret_cast<const char*>(edges_.data()), heads_.data(), 0, 0};
    return {static_cast<Mask::Kind>(kind_), rows_ ? rows_->input() : own, width_, begin};
  }

  const int64_t begin, end;

 private:
  int kind_, width_;
  const View* rows_;
  std::vector<int64_t> edges_, heads_;
};

}  // namespace regard
