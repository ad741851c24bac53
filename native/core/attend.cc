// SPDX-License-Identifier: Apache-2.0
#include "attend.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "chunks.h"
#include "schedule.h"

namespace regard {
namespace {

// A large block brings keys and values into a cache less often than a small one, and evens out worse. So several
// threads get large ones only where there are enough of them.
constexpr int64_t kBlocksPerThread = 8;
constexpr int kSmallBlock = 96;

Schedule cut(const Engine& engine, const Problem& p, int threads) {
  Schedule large(p, engine.block_rows);
  if (threads <= 1 || engine.block_rows <= kSmallBlock || large.tasks() >= kBlocksPerThread * threads) return large;
  return Schedule(p, kSmallBlock);
}

// Null where the blocks are handed out whole.
std::unique_ptr<Chunks> chunks_of(const Engine& engine, const Problem& p, const Schedule& schedule, int threads) {
  if (threads <= 1 || p.keys <= engine.chunk_keys(p.d, p.dv)) return nullptr;
  auto chunks = std::make_unique<Chunks>(engine, p, schedule, threads);
  return chunks->cuts() ? std::move(chunks) : nullptr;
}

// Runs work(problem, block, scratch) for each block. The last go first: under a causal mask the last rows are the
// longest.
template <class Work>
Outcome for_each_block(const Engine& engine, const Problem& p, const Schedule& schedule, int threads, const Poll& poll,
                       Work work) {
  std::atomic<int64_t> left{schedule.tasks()};
  const auto share = [&](const Problem& watched, char* scratch) {
    for (int64_t n = --left; n >= 0 && watched.go_on(watched.watch); n = --left) {
      work(watched, schedule.block(n), scratch);
    }
  };
  return with_workers(engine, p, static_cast<int>(std::min<int64_t>(threads, schedule.tasks())), poll, share);
}

}  // namespace

Outcome attend(const Engine& engine, const Problem& p, int threads, const Poll& poll) {
  const int most = threads_now(p, threads);
  const Schedule schedule = cut(engine, p, most);
  const auto chunks = chunks_of(engine, p, schedule, most);
  if (chunks && chunks->take_memory()) {
    const auto share = [&](const Problem& watched, char* scratch) { chunks->work(watched, scratch); };
    return with_workers(engine, p, static_cast<int>(std::min<int64_t>(most, chunks->tasks())), poll, share);
  }
  return for_each_block(engine, p, schedule, most, poll, engine.attend);
}

Outcome weights(const Engine& engine, const Problem& p, int64_t begin, int64_t end, int threads, const Poll& poll) {
  const int most = threads_now(p, threads);
  const Schedule schedule = cut(engine, p, most);
  return for_each_block(engine, p, schedule, most, poll,
                        [&](const Problem& watched, const Block& block, char* scratch) {
                          engine.weights(watched, block, begin, end, scratch);
                        });
}

size_t chunk_bytes(const Engine& engine, const Problem& p, int threads) {
  const int most = worthwhile_threads(p, threads);
  const Schedule schedule = cut(engine, p, most);
  const auto chunks = chunks_of(engine, p, schedule, most);
  return chunks ? chunks->bytes() : 0;
}

std::vector<int64_t> task_pairs(const Engine& engine, const Problem& p, int threads) {
  const int most = worthwhile_threads(p, threads);
  const Schedule schedule = cut(engine, p, most);
  std::vector<int64_t> pairs;
  const auto count = [&](int64_t n, Range keys) {
    pairs.push_back(count_pairs(p, schedule.block(n), keys, engine.tile_keys(p.d, p.dv), engine.panel_rows));
  };
  if (const auto chunks = chunks_of(engine, p, schedule, most)) {
    chunks->each_task(p, count);
  } else {
    for (int64_t n = schedule.tasks() - 1; n >= 0; --n) count(n, {0, p.keys});
  }
  return pairs;
}

TileCount count_tiles(const Engine& engine, const Problem& p) {
  const Schedule schedule(p, kTileRows);
  const int tile = engine.tile_keys(p.d, p.dv);
  TileCount total{0, 0, 0};
  for (int64_t n = 0; n < schedule.tasks(); ++n) count_tiles(p, schedule.block(n), tile, total);
  return total;
}

}  // namespace regard
