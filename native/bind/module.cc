// SPDX-License-Identifier: Apache-2.0
// Arrays become views, the GIL is released, the engine runs. Signatures, checks and messages are Python's: a call
// that reaches this file is right.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

#include "arrays.h"
#include "attend.h"
#include "cpu.h"
#include "pool.h"
#include "underway.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace regard {
namespace {

std::optional<Buffer> optional_buffer(nb::handle array, bool writable) {
  if (array.is_none()) return std::nullopt;
  return std::optional<Buffer>(std::in_place, array, writable);
}

char* data(const std::optional<Buffer>& b) { return b ? b->data() : nullptr; }

// What happens to a score: scale, softcap, biases, and a sink per head.
class ScoreMap {
 public:
  ScoreMap(double scale, double softcap, nb::handle sinks)
      : scale_(scale), softcap_(softcap), sinks_(optional_buffer(sinks, false)) {}
  void add_bias(const View& view, int dtype) { biases_.push_back({view.input(), static_cast<DType>(dtype)}); }

  void write_to(Problem& p) const {
    p.scale = scale_;
    p.softcap = softcap_;
    p.sinks = reinterpret_cast<const double*>(data(sinks_));
    p.biases = biases_.data();
    p.bias_count = static_cast<int>(biases_.size());
  }

 private:
  double scale_, softcap_;
  std::optional<Buffer> sinks_;
  std::vector<Bias> biases_;
};

// Those that this thread may run on, as far as that can be asked.
int processors() {
#ifdef __linux__
  std::vector<unsigned long> may(16);  // of 1024 of them; the kernel refuses fewer than it has
  for (; may.size() <= 1024; may.resize(2 * may.size())) {
    const size_t bytes = may.size() * sizeof(unsigned long);
    cpu_set_t* set = reinterpret_cast<cpu_set_t*>(may.data());
    if (sched_getaffinity(0, bytes, set) == 0) return std::max(1, CPU_COUNT_S(bytes, set));
  }
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// One kernel: an instruction set and the dtype of the inputs.
const Engine& engine_of(const std::string& target, int dtype) {
  for (const Target& t : targets()) {
    if (target == t.table->name && t.usable) return t.table->engines[dtype];
  }
  throw std::runtime_error("regard._native: no usable target " + target);
}

Problem make_problem(const Input& query, const Input& key, const Input& value, const Sizes& n, const Band& band) {
  Problem p{};
  p.query = query;
  p.key = key;
  p.value = value;
  p.heads = n.heads;
  p.queries = n.queries;
  p.keys = n.keys;
  p.d = n.d;
  p.dv = n.dv;
  p.row_begin = band.begin;
  p.row_end = band.end;
  p.mask = band.mask();
  return p;
}

// What calls have in common whose heads are alike: all that is not read from the arrays. Without a number of threads
// they are as many as there are processors: to count these takes as long as a small call's arithmetic.
class Call {
 public:
  Call(const std::string& target, int dtype, int threads, const Grid& grid, int64_t group, bool row_invariant)
      : engine_(engine_of(target, dtype)),
        threads_(threads),
        grid_(grid),
        group_(group),
        row_invariant_(row_invariant) {}

  // One band of query rows.
  void attend(nb::handle query, nb::handle key, nb::handle value, nb::handle out, nb::handle state, nb::handle max,
              nb::handle sum, nb::handle lse, const Band& band, const ScoreMap& map) const {
    const Operand q(query, grid_, 1, false), k(key, grid_, group_, false), v(value, grid_, group_, false),
        o(out, grid_, 1, true);
    std::optional<Operand> s;
    if (!state.is_none()) s.emplace(state, grid_, 1, true);
    const auto row_max = optional_buffer(max, true), row_sum = optional_buffer(sum, true),
               row_lse = optional_buffer(lse, true);
    const Sizes sizes{q.heads(), q.rows(), k.rows(), q.cols(), v.cols()};
    Problem p = make_problem(q.input(), k.input(), v.input(), sizes, band);
    map.write_to(p);
    p.out = o.output();
    if (s) p.state = s->output();
    p.stats = {data(row_max), data(row_sum), data(row_lse)};
    // Weights are re-made, and states merged, in the order of the contract. A row of several is in it too: whether it
    // is the only one of its block is no business of the caller's.
    p.any_order = !row_invariant_ && sizes.queries == 1 && !s && !p.stats.max && !p.stats.sum && !p.stats.lse;
    run([&](const Poll& poll) { return regard::attend(engine_, p, threads_for(p), poll); });
  }

 private:
  // Processors are asked of the system, which takes as long as a small call: not where one thread is enough.
  int threads_for(const Problem& p) const {
    if (threads_ > 0) return threads_;
    return worthwhile_threads(p, 2) == 1 ? 1 : processors();
  }

  const Engine& engine_;
  int threads_;  // 0: as many as there are processors
  Grid grid_;
  int64_t group_;
  bool row_invariant_;
};

// What a call would make of one band; no array is read. Key and value tell which heads share theirs.
class Question {
 public:
  Question(const std::string& target, int dtype, int threads, const View& key, const View& value, const Sizes& sizes,
           const Band& band)
      : engine_(engine_of(target, dtype)),
        threads_(threads),
        problem_(make_problem(key.input(), key.input(), value.input(), sizes, band)) {}

  std::tuple<int64_t, int64_t, int64_t> count_tiles() const {
    const TileCount n = answer<TileCount>([&] { return regard::count_tiles(engine_, problem_); });
    return {n.visited, n.partial, n.skipped};
  }
  size_t chunk_bytes() const {
    return answer<size_t>([&] { return regard::chunk_bytes(engine_, problem_, threads_); });
  }
  std::vector<int64_t> task_pairs() const {
    return answer<std::vector<int64_t>>([&] { return regard::task_pairs(engine_, problem_, threads_); });
  }

 private:
  template <class Answer, class Ask>
  static Answer answer(Ask ask) {
    Answer found{};
    run([&](const Poll&) {
      found = ask();
      return Outcome::kDone;
    });
    return found;
  }

  const Engine& engine_;
  int threads_;
  Problem problem_;
};

void weigh_arrays(const std::string& target, int dtype, int threads, const View& query, const View& key,
                  const View& out, nb::handle max, nb::handle sum, const Sizes& sizes, const Band& band,
                  const ScoreMap& map, int64_t begin, int64_t end) {
  const Buffer row_max(max, false), row_sum(sum, false);
  Problem p = make_problem(query.input(), key.input(), key.input(), sizes, band);  // the values are not read
  map.write_to(p);
  p.out = out.output();
  p.stats = {row_max.data(), row_sum.data(), nullptr};
  const Engine& engine = engine_of(target, dtype);
  run([&](const Poll& poll) { return weights(engine, p, begin, end, threads, poll); });
}

nb::bytes place_heads_of(const std::vector<Py_ssize_t>& shape, const std::vector<Py_ssize_t>& strides, const Grid& grid,
                         int64_t group) {
  const std::vector<int64_t> at = place_heads(shape.data(), strides.data(), shape.size(), grid, group);
  return nb::bytes(reinterpret_cast<const char*>(at.data()), at.size() * sizeof(int64_t));
}

std::tuple<int, int, size_t> kernel(const std::string& target, int dtype, int d, int dv) {
  const Engine& engine = engine_of(target, dtype);
  return {kTileRows, engine.tile_keys(d, dv), engine.scratch_bytes(d, dv)};
}

std::optional<std::string> enable_by_name(const std::string& target) {
  for (const Target& t : targets()) {
    if (target != t.table->name) continue;
    if (const char* refusal = enable(t)) return refusal;
  }
  return std::nullopt;
}

std::vector<std::tuple<std::string, bool, std::string>> told_targets() {
  std::vector<std::tuple<std::string, bool, std::string>> all;
  for (const Target& t : targets()) all.emplace_back(t.table->name, t.usable, t.why);
  return all;
}

void add_parts(nb::module_& m) {
  nb::class_<View>(m, "View")
      .def(nb::init<nb::handle, nb::handle, ptrdiff_t, ptrdiff_t, bool>(), "array"_a, "heads"_a, "row"_a, "col"_a,
           "writable"_a = false)
      .def_static("over", &View::over, "array"_a, "grid"_a, "heads"_a.none())
      .def_static("along", &View::along, "array"_a, "grid"_a, "starts"_a, "heads"_a.none());
  nb::class_<Sizes>(m, "Sizes")
      .def(nb::init<int64_t, int64_t, int64_t, int, int>(), "heads"_a, "queries"_a, "keys"_a, "d"_a, "dv"_a);
  nb::class_<Band>(m, "Band")
      .def(nb::init<int, const View*, int, int64_t, int64_t>(), "kind"_a, "rows"_a.none(), "width"_a, "begin"_a,
           "end"_a, nb::keep_alive<1, 3>())
      .def_static("alike", &Band::alike, "edges"_a, "heads"_a, "begin"_a, "end"_a);
  nb::class_<ScoreMap>(m, "ScoreMap")
      .def(nb::init<double, double, nb::handle>(), "scale"_a, "softcap"_a, "sinks"_a.none())
      .def("add_bias", &ScoreMap::add_bias, "view"_a, "dtype"_a, nb::keep_alive<1, 2>());
  m.def("place_heads", &place_heads_of, "shape"_a, "strides"_a, "grid"_a, "group"_a);
}

void add_calls(nb::module_& m) {
  nb::class_<Call>(m, "Call")
      .def(nb::init<const std::string&, int, int, const Grid&, int64_t, bool>(), "target"_a, "dtype"_a, "threads"_a,
           "grid"_a, "group"_a, "row_invariant"_a)
      .def("attend", &Call::attend, "query"_a, "key"_a, "value"_a, "out"_a, "state"_a.none(), "max"_a.none(),
           "sum"_a.none(), "lse"_a.none(), "band"_a, "map"_a);
  m.def("weights", &weigh_arrays, "target"_a, "dtype"_a, "threads"_a, "query"_a, "key"_a, "out"_a, "max"_a, "sum"_a,
        "sizes"_a, "band"_a, "map"_a, "begin"_a, "end"_a);
}

void add_questions(nb::module_& m) {
  nb::class_<Question>(m, "Question")
      .def(nb::init<const std::string&, int, int, const View&, const View&, const Sizes&, const Band&>(), "target"_a,
           "dtype"_a, "threads"_a, "key"_a, "value"_a, "sizes"_a, "band"_a, nb::keep_alive<1, 5>(),
           nb::keep_alive<1, 6>(), nb::keep_alive<1, 8>())
      .def("count_tiles", &Question::count_tiles)
      .def("chunk_bytes", &Question::chunk_bytes)
      .def("task_pairs", &Question::task_pairs);
  m.def("kernel", &kernel, "target"_a, "dtype"_a, "d"_a, "dv"_a);
  m.def("processors", &processors);
  m.def("enable", &enable_by_name, "target"_a);
  m.def("targets", &told_targets);
}

}  // namespace
}  // namespace regard

NB_MODULE(_native, m) {
  using namespace regard;
  prepare_for_fork();
  prepare_calls();
  add_parts(m);
  add_calls(m);
  add_questions(m);
}
