// SPDX-License-Identifier: Apache-2.0
#include "attend.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "float_mode.h"
#include "pool.h"
#include "schedule.h"

namespace regard {
namespace {

constexpr std::align_val_t kAlign{64};
constexpr auto kPollEvery = std::chrono::milliseconds(50);
// Multiply-adds that are worth waking a thread for: some tens of microseconds.
constexpr int64_t kWorthAThread = 1 << 20;

struct Free {
  void operator()(char* p) const { ::operator delete(p, kAlign); }
};

// Scratch of one thread. It is kept between calls, for small problems would spend their time in the allocator; a
// call inside a call (a signal handler's, made from within a poll) gets its own.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : nested_(busy()) {
    Memory& memory = nested_ ? own_ : kept();
    if (memory.bytes < bytes) {
      memory.data.reset();
      memory.data.reset(static_cast<char*>(::operator new(bytes, kAlign, std::nothrow)));
      memory.bytes = memory.data ? bytes : 0;
    }
    data_ = memory.data.get();
    busy() = true;
  }
  ~Scratch() { busy() = nested_; }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  char* data() const { return data_; }
  static bool& busy() {
    thread_local bool value = false;
    return value;
  }

 private:
  struct Memory {
    std::unique_ptr<char, Free> data;
    size_t bytes = 0;
  };
  static Memory& kept() {
    thread_local Memory memory;
    return memory;
  }

  bool nested_;
  Memory own_;
  char* data_;
};

// The default rounding and denormal modes while a job runs: a thread's own may differ (a library may have set
// flush-to-zero in it), and which thread takes a row must not be seen.
class DefaultFloatMode {
 public:
  DefaultFloatMode() : saved_(float_mode()) { set_float_mode(kDefaultMode); }
  ~DefaultFloatMode() { set_float_mode(saved_); }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
  const FloatMode saved_;
};

// Tells the workers to stop, and lets the calling thread ask now and then whether it should.
class Watch {
 public:
  Watch(const Poll& poll, std::atomic<Outcome>& outcome, bool polls) : poll_(poll), outcome_(outcome), polls_(polls) {}

  static bool go_on(void* watch) { return static_cast<Watch*>(watch)->ask(); }

 private:
  bool ask() {
    if (polls_ && poll_) {
      const auto now = std::chrono::steady_clock::now();
      if (now - polled_ >= kPollEvery) {
        polled_ = now;
        if (!poll_()) outcome_ = Outcome::kInterrupted;
      }
    }
    return outcome_ == Outcome::kDone;
  }

  const Poll& poll_;
  std::atomic<Outcome>& outcome_;
  const bool polls_;
  std::chrono::steady_clock::time_point polled_ = std::chrono::steady_clock::now();
};

int useful_threads(const Problem& p, int64_t tasks, int threads) {
  const double work = double(p.heads) * double(p.row_end - p.row_begin) * double(p.keys) * double(p.d + p.dv);
  const double worth = std::min(1 + work / kWorthAThread, 1e6);
  return static_cast<int>(std::max<int64_t>(1, std::min<int64_t>({threads, tasks, static_cast<int64_t>(worth)})));
}

// Runs work(problem, task, scratch) for each task. Who takes a task is left to chance, and no result depends on it.
// The last go first: under a causal mask the last rows are the longest.
template <class Work>
Outcome for_each_task(const Engine& engine, const Problem& p, int64_t tasks, int threads, const Poll& poll, Work work) {
  const size_t bytes = engine.scratch_bytes(p.d, p.dv);
  std::atomic<int64_t> left{tasks};
  std::atomic<Outcome> outcome{Outcome::kDone};
  const auto job = [&](int worker) {
    const DefaultFloatMode mode;
    const Scratch scratch(bytes);
    if (!scratch.data()) {
      outcome = Outcome::kNoMemory;
      return;
    }
    Watch watch(poll, outcome, worker == 0);
    Problem watched = p;
    watched.go_on = &Watch::go_on;
    watched.watch = &watch;
    for (int64_t task = --left; task >= 0 && Watch::go_on(&watch); task = --left) work(watched, task, scratch.data());
  };
  const int useful = Scratch::busy() ? 1 : useful_threads(p, tasks, threads);
  if (!run_on_pool(useful, job) && outcome == Outcome::kDone) return Outcome::kForked;
  return outcome;
}

// A problem whose blocks are too few for its threads, cut along the keys too: each chunk of a block is a task, and
// who ends the last chunk of a block joins them.
class Chunks {
 public:
  Chunks(const Engine& engine, const Problem& p, const Schedule& schedule)
      : engine_(engine), schedule_(schedule), pieces_(static_cast<size_t>(schedule.tasks())) {
    const int64_t size = engine.chunk_keys(p.d, p.dv);
    for (int64_t n = 0; n < schedule.tasks(); ++n) {
      const Block block = schedule.block(n);
      const Range all = hull(p, block);
      Piece& piece = pieces_[static_cast<size_t>(n)];
      piece.first = all.empty() ? 0 : all.begin / size;
      piece.count = all.empty() ? 1 : (all.end + size - 1) / size - piece.first;
      piece.bytes = engine.state_bytes(block.rows, p.dv);
      piece.left = piece.count;
      for (int64_t c = 0; c < piece.count; ++c) tasks_.emplace_back(n, c);
      bytes_ += static_cast<size_t>(piece.count) * piece.bytes;
    }
  }
  size_t bytes() const { return bytes_; }
  int64_t tasks() const { return static_cast<int64_t>(tasks_.size()); }
  int64_t block_of(int64_t task) const { return tasks_[static_cast<size_t>(task)].first; }
  int64_t chunk_of(int64_t task) const {
    return pieces_[static_cast<size_t>(block_of(task))].first + tasks_[static_cast<size_t>(task)].second;
  }

  bool take_memory() {
    memory_.reset(static_cast<char*>(::operator new(bytes_, kAlign, std::nothrow)));
    char* at = memory_.get();
    for (Piece& piece : pieces_) {
      for (int64_t c = 0; at && c < piece.count; ++c, at += piece.bytes) piece.states.push_back(at);
    }
    return at != nullptr;
  }

  void run(const Problem& p, int64_t task, char* scratch) {
    const auto [n, chunk] = tasks_[static_cast<size_t>(task)];
    Piece& piece = pieces_[static_cast<size_t>(n)];
    const Block block = schedule_.block(n);
    engine_.attend_chunk(p, block, piece.first + chunk, piece.states[static_cast<size_t>(chunk)], scratch);
    if (--piece.left == 0) engine_.join_chunks(p, block, piece.states.data(), piece.count, scratch);
  }

 private:
  struct Piece {
    int64_t first = 0, count = 0;  // its chunks
    size_t bytes = 0;              // of one state
    std::atomic<int64_t> left{0};
    std::vector<char*> states;
  };
  const Engine& engine_;
  const Schedule& schedule_;
  std::vector<Piece> pieces_;
  std::vector<std::pair<int64_t, int64_t>> tasks_;  // block, chunk of it
  size_t bytes_ = 0;
  std::unique_ptr<char, Free> memory_;
};

// Blocks per thread that even out by themselves; fewer are cut along the keys, where the states take no more than so
// many bytes. Cut or not, the bits are the same.
constexpr int64_t kEnoughBlocks = 8;
constexpr size_t kMostStates = size_t(1) << 24;

// Null where the blocks are handed out whole.
std::unique_ptr<Chunks> chunks_of(const Engine& engine, const Problem& p, const Schedule& schedule, int threads) {
  if (useful_threads(p, p.keys, threads) <= 1 || schedule.tasks() >= kEnoughBlocks * threads ||
      p.keys <= engine.chunk_keys(p.d, p.dv)) {
    return nullptr;
  }
  auto chunks = std::make_unique<Chunks>(engine, p, schedule);
  return chunks->bytes() <= kMostStates ? std::move(chunks) : nullptr;
}

// Adds what became of the tiles of one block. A span drops no tile that it covers: differences over the tiles count
// the rows that see each of them and those that keep all of it.
void count_block(const Problem& p, const Block& block, int tile, std::vector<int>& seen, std::vector<int>& whole,
                 TileCount& total) {
  const int64_t tiles = (p.keys + tile - 1) / tile;
  if (p.mask.kind == Mask::kFull) {
    total.visited += tiles;
    return;
  }
  if (p.mask.kind != Mask::kSpans) {
    const TileCount one = count_tiles(p, block, tile);
    total = {total.visited + one.visited, total.partial + one.partial, total.skipped + one.skipped};
    return;
  }
  seen.assign(static_cast<size_t>(tiles) + 1, 0);
  whole.assign(static_cast<size_t>(tiles) + 1, 0);
  for (int r = 0; r < block.rows; ++r) {
    int64_t counted = 0;  // tiles below are counted as seen by this row
    for (int s = 0; s < p.mask.width; ++s) {
      const Range span = span_of(p.mask, block.head[r], block.query[r], s);
      if (span.empty()) continue;
      const int64_t first = std::max(span.begin / tile, counted), last = (span.end + tile - 1) / tile;
      if (first < last) {
        ++seen[first];
        --seen[last];
        counted = last;
      }
      const int64_t from = (span.begin + tile - 1) / tile, to = span.end == p.keys ? tiles : span.end / tile;
      if (from < to) {
        ++whole[from];
        --whole[to];
      }
    }
  }
  int sees = 0, keeps = 0;
  for (int64_t t = 0; t < tiles; ++t) {
    sees += seen[t];
    keeps += whole[t];
    ++(sees ? total.visited : total.skipped);
    if (sees && keeps < block.rows) ++total.partial;
  }
}

}  // namespace

Outcome attend(const Engine& engine, const Problem& p, int threads, const Poll& poll) {
  const Schedule schedule(p);
  const auto whole = [&](const Problem& watched, int64_t task, char* scratch) {
    engine.attend(watched, schedule.block(task), scratch);
  };
  const auto chunks = chunks_of(engine, p, schedule, threads);
  if (chunks && chunks->take_memory()) {
    return for_each_task(
        engine, p, chunks->tasks(), threads, poll,
        [&](const Problem& watched, int64_t task, char* scratch) { chunks->run(watched, task, scratch); });
  }
  return for_each_task(engine, p, schedule.tasks(), threads, poll, whole);
}

Outcome weights(const Engine& engine, const Problem& p, int64_t begin, int64_t end, int threads, const Poll& poll) {
  const Schedule schedule(p);
  return for_each_task(engine, p, schedule.tasks(), threads, poll,
                       [&](const Problem& watched, int64_t task, char* scratch) {
                         engine.weights(watched, schedule.block(task), begin, end, scratch);
                       });
}

size_t chunk_bytes(const Engine& engine, const Problem& p, int threads) {
  const Schedule schedule(p);
  const auto chunks = chunks_of(engine, p, schedule, threads);
  return chunks ? chunks->bytes() : 0;
}

std::vector<int64_t> task_pairs(const Engine& engine, const Problem& p, int threads) {
  const Schedule schedule(p);
  const auto chunks = chunks_of(engine, p, schedule, threads);
  const int tile = engine.tile_keys(p.d, p.dv);
  const int64_t size = engine.chunk_keys(p.d, p.dv);
  std::vector<int64_t> pairs;
  for (int64_t task = (chunks ? chunks->tasks() : schedule.tasks()) - 1; task >= 0; --task) {
    const int64_t first = chunks ? chunks->chunk_of(task) * size : 0, end = chunks ? first + size : p.keys;
    const Block block = schedule.block(chunks ? chunks->block_of(task) : task);
    pairs.push_back(count_pairs(p, block, {first, std::min(end, p.keys)}, tile));
  }
  return pairs;
}

TileCount count_tiles(const Engine& engine, const Problem& p) {
  const Schedule schedule(p);
  const int tile = engine.tile_keys(p.d, p.dv);
  TileCount total{0, 0, 0};
  std::vector<int> seen, whole;
  for (int64_t task = 0; task < schedule.tasks(); ++task) {
    count_block(p, schedule.block(task), tile, seen, whole, total);
  }
  return total;
}

}  // namespace regard
