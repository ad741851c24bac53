// SPDX-License-Identifier: Apache-2.0
#include "chunks.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace regard {
namespace {

// Blocks that are no more than this part of a thread's share even out by themselves.
constexpr int64_t kPartOfShare = 20;

// States are as many as there are chunks, but no more than these, whichever is more: a thread that the system puts
// aside then holds the others up only when they are far ahead.
constexpr size_t kStatesPerThread = 4;
constexpr size_t kStatesBytes = size_t(1) << 22;

// A chunk takes a hundred microseconds and more. Asked again and again, for a forked child would wait for ever to
// destroy a condition that its parent's threads wait for.
constexpr auto kPause = std::chrono::microseconds(50);

}  // namespace

Chunks::Chunks(const Engine& engine, const Problem& p, const Schedule& schedule, int threads)
    : engine_(engine), schedule_(schedule) {
  std::vector<double> pairs(static_cast<size_t>(schedule.tasks()));
  double sum = 0;
  for (size_t n = 0; n < pairs.size(); ++n) {
    const auto like = static_cast<size_t>(schedule.first_alike(static_cast<int64_t>(n)));
    pairs[n] = like < n ? pairs[like] : static_cast<double>(likely_pairs(p, schedule.block(static_cast<int64_t>(n))));
    sum += pairs[n];
  }
  // The last go first: under a causal mask the last rows are the longest.
  for (int64_t n = schedule.tasks() - 1; n >= 0; --n) {
    if (pairs[static_cast<size_t>(n)] * kPartOfShare * threads > sum) {
      add_piece(p, n);
    } else {
      whole_.push_back(n);
    }
  }
  const size_t enough = std::max(kStatesPerThread * static_cast<size_t>(threads), kStatesBytes / bytes_);
  count_ = static_cast<size_t>(std::max<int64_t>(2, std::min<int64_t>(tasks_, static_cast<int64_t>(enough))));
}

void Chunks::add_piece(const Problem& p, int64_t n) {
  const int64_t size = engine_.chunk_keys(p.d, p.dv);
  const Block block = schedule_.block(n);
  Piece piece;
  piece.block = n;
  // Between the first keys and a window there may be thousands of chunks: they are no tasks.
  for (const Range& keys : reached(p, block)) {
    piece.chunks.push_back({keys.begin / size, (keys.end + size - 1) / size});
  }
  join(piece.chunks);
  if (piece.chunks.empty()) piece.chunks.push_back({0, 1});
  for (const Range& run : piece.chunks) piece.count += run.end - run.begin;
  tasks_ += piece.count;
  bytes_ = std::max(bytes_, engine_.state_bytes(block.rows, p.dv));
  pieces_.push_back(std::move(piece));
}

bool Chunks::take_memory() {
  memory_ = aligned(bytes());
  for (size_t n = 0; memory_ && n < count_; ++n) free_.push_back({memory_.get() + n * bytes_, 0});
  return memory_ != nullptr;
}

void Chunks::work(const Problem& p, char* scratch) {
  work_on_pieces(p, scratch);
  for (size_t n = next_whole_++; n < whole_.size() && p.go_on(p.watch); n = next_whole_++) {
    engine_.attend(p, schedule_.block(whole_[n]), scratch);
  }
}

void Chunks::work_on_pieces(const Problem& p, char* scratch) {
  Task task;
  while (p.go_on(p.watch) && take(p, task)) {
    const Block block = schedule_.block(task.piece->block);
    engine_.attend_chunk(p, block, task.piece->chunk(task.state->chunk), task.state->memory, scratch);
    if (!p.go_on(p.watch)) return;  // the chunk may not be whole
    give(p, block, task, scratch);
  }
}

// In one step: else a later chunk could take the last state, and the one that all of them wait for would get none.
bool Chunks::take(const Problem& p, Task& task) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (at_ < pieces_.size() && free_.empty()) {
    lock.unlock();  // asking may call anything, another call of regard's too, and fork
    std::this_thread::sleep_for(kPause);
    if (!p.go_on(p.watch)) return false;
    lock.lock();
  }
  if (at_ == pieces_.size()) return false;
  task = {&pieces_[at_], free_.begin()};
  task.state->chunk = next_;
  busy_.splice(busy_.end(), free_, task.state);
  if (++next_ == task.piece->count) {
    ++at_;
    next_ = 0;
  }
  return true;
}

// Puts a folded chunk in its place, and merges what is due unless another thread is at it, which then finds it there.
void Chunks::give(const Problem& p, const Block& block, const Task& task, char* scratch) {
  Piece& piece = *task.piece;
  std::unique_lock<std::mutex> lock(mutex_);
  auto after = piece.waiting.end();
  while (after != piece.waiting.begin() && std::prev(after)->chunk > task.state->chunk) --after;
  piece.waiting.splice(after, busy_, task.state);
  if (piece.merging) return;
  piece.merging = true;
  while (!piece.waiting.empty() && piece.waiting.front().chunk == piece.merged) {
    const auto next = piece.waiting.begin();
    if (piece.merged++ == 0) {
      piece.total.splice(piece.total.end(), piece.waiting, next);
      continue;
    }
    busy_.splice(busy_.end(), piece.waiting, next);
    lock.unlock();
    engine_.merge_chunk(p, block, piece.total.front().memory, next->memory, scratch);
    lock.lock();
    free_.splice(free_.begin(), busy_, next);  // it is in the caches: the next to be taken
  }
  piece.merging = false;
  if (piece.merged < piece.count) return;
  lock.unlock();
  engine_.finish_chunks(p, block, piece.total.front().memory);
  lock.lock();
  free_.splice(free_.begin(), piece.total);
}

}  // namespace regard
