// SPDX-License-Identifier: Apache-2.0
// Arrays become views, the GIL is released, the engine runs. Signatures, checks and messages are Python's: a call
// that reaches this file is right.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "attend.h"
#include "cpu.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace regard {
namespace {

// A buffer that stays alive as long as its owner; any strides, readable or writable.
class Buffer {
 public:
  Buffer(nb::handle array, bool writable) {
    const int flags = PyBUF_STRIDES | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(array.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  Buffer(Buffer&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }

  char* data() const { return static_cast<char*>(view_.buf); }

 private:
  Py_buffer view_;
};

// An array with the place of each of its heads: what view.h calls Strided.
class View {
 public:
  View(nb::handle array, nb::handle heads, ptrdiff_t row, ptrdiff_t col, bool writable)
      : array_(array, writable), heads_(heads, false), row_(row), col_(col) {}

  Input input() const { return {array_.data(), heads(), row_, col_}; }
  Output output() const { return {array_.data(), heads(), row_, col_}; }

 private:
  const int64_t* heads() const { return reinterpret_cast<const int64_t*>(heads_.data()); }

  Buffer array_, heads_;
  ptrdiff_t row_, col_;
};

struct Sizes {
  int64_t heads, queries, keys;
  int d, dv;
};

struct Band {
  int kind;
  const View* rows;
  int width;
  int64_t begin, end;
};

using StatArrays = std::array<std::optional<Buffer>, 3>;

Problem make_problem(const View& query, const View& key, const View& value, const Sizes& n, const Band& band,
                     double scale) {
  Problem p{};
  p.query = query.input();
  p.key = key.input();
  p.value = value.input();
  p.heads = n.heads;
  p.queries = n.queries;
  p.keys = n.keys;
  p.d = n.d;
  p.dv = n.dv;
  p.row_begin = band.begin;
  p.row_end = band.end;
  p.scale = static_cast<float>(scale);
  p.mask.kind = static_cast<Mask::Kind>(band.kind);
  if (band.rows) p.mask.rows = band.rows->input();
  p.mask.width = band.width;
  p.mask.first_row = band.begin;
  return p;
}

float* floats(const std::optional<Buffer>& b) { return b ? reinterpret_cast<float*>(b->data()) : nullptr; }

const Engine& engine_of(const std::string& target) {
  for (const Target& t : targets()) {
    if (target == t.table->name && t.usable) return t.table->float32;
  }
  throw std::runtime_error("regard._native: no usable target " + target);
}

// Ctrl-C sets a flag that only the main thread may act upon, with the GIL.
bool no_signal() {
  nb::gil_scoped_acquire gil;
  return PyErr_CheckSignals() == 0;
}

void raise(Outcome outcome) {
  if (outcome == Outcome::kNoMemory) throw std::bad_alloc();
  if (outcome == Outcome::kInterrupted) throw nb::python_error();
}

std::optional<Buffer> optional_buffer(nb::handle array, bool writable) {
  if (array.is_none()) return std::nullopt;
  return std::optional<Buffer>(std::in_place, array, writable);
}

void attend_arrays(const std::string& target, int threads, const View& query, const View& key, const View& value,
                   const View& out, nb::handle max, nb::handle sum, nb::handle lse, const Sizes& sizes,
                   const Band& band, double scale) {
  const StatArrays stats{optional_buffer(max, true), optional_buffer(sum, true), optional_buffer(lse, true)};
  Problem p = make_problem(query, key, value, sizes, band, scale);
  p.out = out.output();
  p.stats = {floats(stats[0]), floats(stats[1]), floats(stats[2])};
  const Engine& engine = engine_of(target);
  Outcome outcome;
  {
    nb::gil_scoped_release released;
    outcome = attend(engine, p, threads, no_signal);
  }
  raise(outcome);
}

void weigh_arrays(const std::string& target, int threads, const View& query, const View& key, const View& out,
                  nb::handle max, nb::handle sum, const Sizes& sizes, const Band& band, double scale, int64_t begin,
                  int64_t end) {
  const Buffer max_buffer(max, false), sum_buffer(sum, false);
  Problem p = make_problem(query, key, key, sizes, band, scale);  // the values are not read
  p.out = out.output();
  p.stats = {reinterpret_cast<float*>(max_buffer.data()), reinterpret_cast<float*>(sum_buffer.data()), nullptr};
  const Engine& engine = engine_of(target);
  Outcome outcome;
  {
    nb::gil_scoped_release released;
    outcome = weights(engine, p, begin, end, threads, no_signal);
  }
  raise(outcome);
}

}  // namespace
}  // namespace regard

NB_MODULE(_native, m) {
  using namespace regard;
  nb::class_<View>(m, "View").def(nb::init<nb::handle, nb::handle, ptrdiff_t, ptrdiff_t, bool>(), "array"_a, "heads"_a,
                                  "row"_a, "col"_a, "writable"_a = false);
  nb::class_<Sizes>(m, "Sizes")
      .def(nb::init<int64_t, int64_t, int64_t, int, int>(), "heads"_a, "queries"_a, "keys"_a, "d"_a, "dv"_a);
  nb::class_<Band>(m, "Band").def(nb::init<int, const View*, int, int64_t, int64_t>(), "kind"_a, "rows"_a.none(),
                                  "width"_a, "begin"_a, "end"_a, nb::keep_alive<1, 3>());
  m.def("attend", &attend_arrays, "target"_a, "threads"_a, "query"_a, "key"_a, "value"_a, "out"_a, "max"_a.none(),
        "sum"_a.none(), "lse"_a.none(), "sizes"_a, "band"_a, "scale"_a);
  m.def("weights", &weigh_arrays, "target"_a, "threads"_a, "query"_a, "key"_a, "out"_a, "max"_a, "sum"_a, "sizes"_a,
        "band"_a, "scale"_a, "begin"_a, "end"_a);
  m.def(
      "count_tiles",
      [](const std::string& target, const View& key, const Sizes& sizes, const Band& band) {
        const Problem p = make_problem(key, key, key, sizes, band, 0);
        const TileCount n = count_tiles(engine_of(target), p);
        return std::make_tuple(n.visited, n.partial, n.skipped);
      },
      "target"_a, "key"_a, "sizes"_a, "band"_a);
  m.def(
      "kernel",
      [](const std::string& target, int d, int dv) {
        const Engine& engine = engine_of(target);
        return std::make_tuple(kBlockRows, engine.tile_keys(d, dv), engine.scratch_bytes(d, dv));
      },
      "target"_a, "d"_a, "dv"_a);
  m.def("targets", [] {
    std::vector<std::tuple<std::string, bool, std::string>> all;
    for (const Target& t : targets()) all.emplace_back(t.table->name, t.usable, t.why);
    return all;
  });
}
