// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <vector>

#include "aligned.h"
#include "cover.h"
#include "regard/table.h"
#include "schedule.h"

namespace regard {

// A problem whose blocks do not even out by themselves. Each chunk of a long block that its rows reach is a task; then
// come the other blocks, whole. Chunks are handed out in their order, block by block, and who has folded one merges all
// that are due. However many keys there are, they share a few states per thread.
//
// By the spans of its rows a task is no more than a twentieth of a thread's share, or one chunk of one block. So,
// handed out one after the other, they leave no thread more than that above the mean. Of bits and bytes, which are not
// looked at beforehand, nothing of the kind is promised. Cut or not, the results' bits are the same.
//
// A thread gets a chunk and a free state in one step, and waits while none is free. It never waits for ever: while no
// thread folds or merges, what was handed out is merged, so that only the block at hand has a state, its total; and
// there are two.
class Chunks {
 public:
  Chunks(const Engine&, const Problem&, const Schedule&, int threads);

  // Whether there is a block to cut: where there is none, the problem is better without.
  bool cuts() const { return !pieces_.empty(); }
  int64_t tasks() const { return tasks_ + static_cast<int64_t>(whole_.size()); }
  // What all states take.
  size_t bytes() const { return count_ * bytes_; }
  // To be called before any work; false where the system has none.
  bool take_memory();
  // What one worker does.
  void work(const Problem&, char* scratch);

  // f(block, keys) in the order in which the tasks are handed out.
  template <class F>
  void each_task(const Problem& p, F f) const {
    const int64_t size = engine_.chunk_keys(p.d, p.dv);
    for (const Piece& piece : pieces_) {
      for (const Range& run : piece.chunks) {
        for (int64_t c = run.begin; c < run.end; ++c) {
          f(piece.block, Range{c * size, std::min((c + 1) * size, p.keys)});
        }
      }
    }
    for (int64_t n : whole_) f(n, Range{0, p.keys});
  }

 private:
  struct State {
    char* memory;
    int64_t chunk;  // how many of its block come before the one that it holds
  };
  typedef std::list<State> States;  // which move between lists and are never copied
  struct Piece {
    int64_t block = 0, count = 0;  // of its chunks
    std::vector<Range> chunks;     // which they are
    int64_t merged = 0;            // of them, into the total
    bool merging = false;          // a thread is at it
    States waiting, total;         // for an earlier chunk, in their order; of the merged ones

    // The chunk that comes after so many others of the block.
    int64_t chunk(int64_t n) const {
      size_t run = 0;
      for (; n >= chunks[run].end - chunks[run].begin; ++run) n -= chunks[run].end - chunks[run].begin;
      return chunks[run].begin + n;
    }
  };
  struct Task {
    Piece* piece;
    States::iterator state;
  };

  void add_piece(const Problem&, int64_t n);
  void work_on_pieces(const Problem&, char* scratch);
  bool take(const Problem&, Task&);
  void give(const Problem&, const Block&, const Task&, char* scratch);

  const Engine& engine_;
  const Schedule& schedule_;
  std::vector<Piece> pieces_;      // the long blocks
  std::vector<int64_t> whole_;     // the others
  int64_t tasks_ = 0;              // of the pieces
  size_t count_ = 0, bytes_ = 64;  // of states, and of one
  Aligned memory_;
  std::mutex mutex_;    // of what is below, and of the pieces
  States free_, busy_;  // in a thread's hands
  size_t at_ = 0;       // the piece that is handed out
  int64_t next_ = 0;    // its next chunk
  std::atomic<size_t> next_whole_{0};
};

}  // namespace regard
