// SPDX-License-Identifier: Apache-2.0
#include "attend.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <new>

#include "pool.h"
#include "schedule.h"

namespace regard {
namespace {

constexpr std::align_val_t kAlign{64};
constexpr auto kPollEvery = std::chrono::milliseconds(50);

struct Free {
  void operator()(char* p) const { ::operator delete(p, kAlign); }
};

// A thread keeps its scratch between calls: small problems would spend their time in the allocator.
char* thread_scratch(size_t bytes) {
  thread_local std::unique_ptr<char, Free> memory;
  thread_local size_t size = 0;
  if (size < bytes) {
    memory.reset();
    size = 0;
    memory.reset(static_cast<char*>(::operator new(bytes, kAlign, std::nothrow)));
    if (memory) size = bytes;
  }
  return memory.get();
}

// Runs work(block, scratch) for each task. Who takes a task is left to chance, and no result depends on it. The last
// rows go first: under a causal mask they are the longest.
template <class Work>
Outcome for_each_block(const Engine& engine, const Problem& p, int threads, const Poll& poll, Work work) {
  const Schedule schedule(p);
  const size_t bytes = engine.scratch_bytes(p.d, p.dv);
  std::atomic<int64_t> left{schedule.tasks()};
  std::atomic<Outcome> outcome{Outcome::kDone};
  const auto job = [&](int worker) {
    char* const scratch = thread_scratch(bytes);
    if (!scratch) {
      outcome = Outcome::kNoMemory;
      return;
    }
    auto polled = std::chrono::steady_clock::now();
    for (;;) {
      const int64_t task = --left;
      if (task < 0 || outcome != Outcome::kDone) return;
      work(schedule.block(task), scratch);
      if (worker != 0) continue;
      const auto now = std::chrono::steady_clock::now();
      if (now - polled < kPollEvery) continue;
      polled = now;
      if (!poll()) outcome = Outcome::kInterrupted;
    }
  };
  const int64_t useful = std::min<int64_t>(threads, schedule.tasks());
  run_on_pool(static_cast<int>(std::max<int64_t>(useful, 1)), job);
  return outcome;
}

}  // namespace

Outcome attend(const Engine& engine, const Problem& p, int threads, const Poll& poll) {
  return for_each_block(engine, p, threads, poll,
                        [&](const Block& block, char* scratch) { engine.attend(p, block, scratch); });
}

Outcome weights(const Engine& engine, const Problem& p, int64_t begin, int64_t end, int threads, const Poll& poll) {
  return for_each_block(engine, p, threads, poll,
                        [&](const Block& block, char* scratch) { engine.weights(p, block, begin, end, scratch); });
}

TileCount count_tiles(const Engine& engine, const Problem& p) {
  const Schedule schedule(p);
  const int tile = engine.tile_keys(p.d, p.dv);
  TileCount total{0, 0, 0};
  for (int64_t task = 0; task < schedule.tasks(); ++task) {
    const TileCount one = count_tiles(p, schedule.block(task), tile);
    total.visited += one.visited;
    total.partial += one.partial;
    total.skipped += one.skipped;
  }
  return total;
}

}  // namespace regard
