// SPDX-License-Identifier: Apache-2.0
// Chunks of keys in several threads, with a kernel that only notes what it is asked for: so the order in which threads
// get on can be laid down, and memory can be refused.
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <thread>
#include <vector>

#include "attend.h"
#include "check.h"

namespace {
// Says whether so many bytes are to be refused to the calling thread.
std::atomic<bool (*)(size_t)> g_refuses{nullptr};
}  // namespace

#ifndef _WIN32
void* operator new(size_t bytes, std::align_val_t line, const std::nothrow_t&) noexcept {
  const auto refuses = g_refuses.load();
  const size_t unit = static_cast<size_t>(line);
  return refuses && refuses(bytes) ? nullptr : aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
}
void operator delete(void* p, std::align_val_t) noexcept { free(p); }
#endif

namespace regard {
namespace {

constexpr int64_t kChunk = 10;
constexpr size_t kStateBytes = size_t(1) << 20;  // of which the first bytes are touched

// What a state holds: chunks [begin, end) of the block with this first head.
struct State {
  int64_t head, begin, end;
};
State* state_of(char* memory) { return reinterpret_cast<State*>(memory); }

// What has been asked for, by whichever thread.
struct Seen {
  std::atomic<int64_t> folded{0}, merged{0}, finished{0}, whole{0}, wrong{0};
  std::atomic<bool> told{false};
  std::atomic<bool> merging[64] = {};  // by block
};
Seen* g_seen;
// Called while a chunk is folded, and while one is merged.
void (*g_meanwhile)(const Problem&, int64_t chunk);
void (*g_while_merged)(int64_t chunk);
size_t g_scratch = 64;

int64_t chunks(const Problem& p) { return (p.keys + kChunk - 1) / kChunk; }

void attend_whole(const Problem&, const Block&, char*) { ++g_seen->whole; }

void attend_chunk(const Problem& p, const Block& block, int64_t chunk, char* memory, char*) {
  State* const state = state_of(memory);
  *state = {block.head[0], chunk, chunk + 1};
  if (g_meanwhile) g_meanwhile(p, chunk);
  if (state->head != block.head[0] || state->begin != chunk || state->end != chunk + 1) ++g_seen->wrong;
  ++g_seen->folded;
}

void merge_chunk(const Problem&, const Block& block, char* into, char* from, char*) {
  State *const total = state_of(into), *const next = state_of(from);
  if (g_seen->merging[block.head[0]].exchange(true)) ++g_seen->wrong;
  if (g_while_merged) g_while_merged(next->begin);
  if (total->head != block.head[0] || next->head != block.head[0] || total->end != next->begin) ++g_seen->wrong;
  total->end = next->end;
  *next = {-1, -1, -1};
  ++g_seen->merged;
  g_seen->merging[block.head[0]] = false;
}

void finish_chunks(const Problem& p, const Block& block, char* memory) {
  State* const total = state_of(memory);
  if (total->head != block.head[0] || total->begin != 0 || total->end != chunks(p)) ++g_seen->wrong;
  ++g_seen->finished;
}

const Engine kNotes = {4,
                       kBlockRows,
                       [](int, int) { return 5; },
                       [](int, int) { return kChunk; },
                       [](int, int) { return g_scratch; },
                       [](int, int) { return kStateBytes; },
                       attend_whole,
                       attend_chunk,
                       merge_chunk,
                       finish_chunks,
                       [](const Problem&, const Block&, int64_t, int64_t, char*) {}};

// So many heads of one query each: a block per head. They are worth any number of threads.
struct Setting {
  std::vector<int64_t> heads, spans, rows;
  Problem p{};
  Seen seen;

  Setting(int64_t blocks, int64_t keys, void (*meanwhile)(const Problem&, int64_t) = nullptr) {
    for (int64_t h = 0; h < blocks; ++h) heads.push_back(h);
    p.key.head = p.value.head = heads.data();
    p.heads = blocks;
    p.queries = p.row_end = 1;
    p.keys = keys;
    p.d = p.dv = 1 << 24;
    g_seen = &seen;
    g_meanwhile = meanwhile;
  }
  // Block h keeps the first of so many keys.
  void keep_first(const std::vector<int64_t>& lengths) {
    for (int64_t length : lengths) {
      rows.push_back(static_cast<int64_t>(spans.size() * sizeof(int64_t)));
      spans.insert(spans.end(), {0, length});
    }
    p.mask = {Mask::kSpans, {reinterpret_cast<const char*>(spans.data()), rows.data(), 0, 1}, 1, 0};
  }
  int64_t states(int threads) const { return static_cast<int64_t>(chunk_bytes(kNotes, p, threads) / kStateBytes); }
};

void check_done(const Setting& s, Outcome outcome, const char* name) {
  CHECK(outcome == Outcome::kDone, "%s: outcome %d", name, static_cast<int>(outcome));
  CHECK(s.seen.wrong == 0, "%s: %d states were not what they should be", name, static_cast<int>(s.seen.wrong));
  CHECK(s.seen.whole == 0 && s.seen.finished == s.p.heads, "%s: %d blocks of %d", name,
        static_cast<int>(s.seen.finished), static_cast<int>(s.p.heads));
  CHECK(s.seen.folded == s.p.heads * chunks(s.p), "%s: %d chunks", name, static_cast<int>(s.seen.folded));
  CHECK(s.seen.merged == s.p.heads * (chunks(s.p) - 1), "%s: %d merged", name, static_cast<int>(s.seen.merged));
}

void test_any_order() {
  const auto now_and_then = [](const Problem&, int64_t chunk) {
    if (chunk % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200 * (chunk % 3)));
    std::this_thread::yield();
  };
  for (int threads : {2, 3, 5}) {
    for (int64_t blocks : {1, 2, 30}) {
      for (int64_t keys : {11, 20, 400}) {
        Setting s(blocks, keys, now_and_then);
        check_done(s, attend(kNotes, s.p, threads, Poll()), "any order");
      }
    }
  }
}

// The first chunk of the only block is not done before the other thread has folded as many as there are states for.
void test_a_thread_lags() {
  Setting s(1, 1000, [](const Problem& p, int64_t chunk) {
    if (chunk != 0) return;
    while (g_seen->folded < 7) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // for one that would go too far
    if (g_seen->folded != 7 || g_seen->merged != 0) ++g_seen->wrong;
    g_seen->told = p.keys > 0;
  });
  CHECK(s.states(2) == 8, "%d states", static_cast<int>(s.states(2)));
  check_done(s, attend(kNotes, s.p, 2, Poll()), "a thread lags");
  CHECK(s.seen.told, "chunk 0 has waited for the others");
}

// While one thread merges, the other folds until no state is free, and merges nothing.
void test_a_merge_lags() {
  Setting s(1, 1000);
  g_while_merged = [](int64_t chunk) {
    while (chunk == 1 && g_seen->folded < 8) std::this_thread::yield();
  };
  check_done(s, attend(kNotes, s.p, 2, Poll()), "a merge lags");
  g_while_merged = nullptr;
}

void test_states_are_few() {
  const auto states = [](int64_t blocks, int64_t keys, int threads) { return Setting(blocks, keys).states(threads); };
  CHECK(states(1, 10, 2) == 0, "one chunk is not cut");
  CHECK(states(1, 1000, 1) == 0, "one thread cuts nothing");
  CHECK(states(1, 11, 2) == 2, "as many as chunks");
  CHECK(states(3, 20, 8) == 6, "as many as chunks");
  CHECK(states(1, int64_t(1) << 40, 2) == 8, "however many keys");
  CHECK(states(1, int64_t(1) << 40, 16) == 64, "four per thread");
  CHECK(states(39, 1000, 2) == 8 && states(40, 1000, 2) == 0, "enough blocks are not cut");
}

// One block is half of all: it is cut, wherever it stands, and the others are handed out whole after it.
void test_one_long_block() {
  for (int64_t at : {0, 1, 63}) {
    std::vector<int64_t> lengths(64, 12), want(30, kChunk);
    lengths[static_cast<size_t>(at)] = 300;
    want.insert(want.end(), 63, 12);
    Setting s(64, 300);
    s.keep_first(lengths);
    CHECK(task_pairs(kNotes, s.p, 2) == want, "the long block is number %d", static_cast<int>(at));
    CHECK(s.states(2) == 8, "%d states", static_cast<int>(s.states(2)));
    for (int threads : {2, 3, 4}) {
      CHECK(attend(kNotes, s.p, threads, Poll()) == Outcome::kDone, "%d threads", threads);
      CHECK(s.seen.wrong == 0 && s.seen.folded.exchange(0) == 30 && s.seen.merged.exchange(0) == 29 &&
                s.seen.finished.exchange(0) == 1 && s.seen.whole.exchange(0) == 63,
            "%d threads", threads);
    }
  }
}

// Keys that no row reaches are no tasks, and what there is of them is merged in its order.
void test_a_hole() {
  Setting s(2, 300);
  for (int64_t n : {0, 1}) {
    s.rows.push_back(n * 4 * static_cast<int64_t>(sizeof(int64_t)));
    s.spans.insert(s.spans.end(), {0, 12, 275, 300 - 20 * n});
  }
  s.p.mask = {Mask::kSpans, {reinterpret_cast<const char*>(s.spans.data()), s.rows.data(), 0, 1}, 2, 0};
  CHECK(task_pairs(kNotes, s.p, 2).size() == 2 + 1 + 2 + 3, "%d tasks",
        static_cast<int>(task_pairs(kNotes, s.p, 2).size()));
  for (int threads : {2, 3}) {
    CHECK(attend(kNotes, s.p, threads, Poll()) == Outcome::kDone, "%d threads", threads);
    CHECK(s.seen.folded.exchange(0) == 8 && s.seen.merged.exchange(0) == 6 && s.seen.finished.exchange(0) == 2 &&
              s.seen.wrong.exchange(0) == 2 + 1,  // across the hole of each block, and where the second ends
          "%d threads", threads);
  }
}

bool told_to_stop() {
  g_seen->told = true;
  return false;
}

void wait_to_be_told(const Problem& p) {
  while (p.go_on(p.watch)) std::this_thread::yield();
}

// Chunk 5 is cut short: neither it nor what comes after it is merged.
void test_interrupted_in_a_chunk() {
  Setting s(1, 1000, [](const Problem& p, int64_t chunk) {
    if (chunk == 5) wait_to_be_told(p);
  });
  const Outcome outcome = attend(kNotes, s.p, 2, told_to_stop);
  CHECK(outcome == Outcome::kInterrupted, "outcome %d", static_cast<int>(outcome));
  CHECK(s.seen.merged <= 4 && s.seen.finished == 0 && s.seen.wrong == 0, "%d merged, %d finished",
        static_cast<int>(s.seen.merged), static_cast<int>(s.seen.finished));
}

// One thread holds the first chunk, and the other waits for a state, when it is told.
void test_interrupted_while_waiting() {
  Setting s(1, 1000, [](const Problem& p, int64_t chunk) {
    if (chunk == 0) wait_to_be_told(p);
  });
  const Outcome outcome = attend(kNotes, s.p, 2, [] { return g_seen->folded < 7 || told_to_stop(); });
  CHECK(outcome == Outcome::kInterrupted && s.seen.merged == 0, "outcome %d", static_cast<int>(outcome));
}

// The calling thread is unwound while it holds a chunk, and the other waits for a state.
void test_a_poll_that_does_not_come_back() {
  static const std::thread::id caller = std::this_thread::get_id();
  Setting s(1, 1000, [](const Problem& p, int64_t) {
    if (std::this_thread::get_id() != caller) {
      while (!g_seen->told) std::this_thread::yield();
    } else {
      g_seen->told = true;
      wait_to_be_told(p);
    }
  });
  bool unwound = false;
  try {
    attend(kNotes, s.p, 2, [] { return g_seen->folded < 7 ? true : throw 1; });
  } catch (int) {
    unwound = true;
  }
  CHECK(unwound && s.seen.folded == 7, "%d chunks", static_cast<int>(s.seen.folded));
}

// A call from within a poll has no other thread, and is not cut.
void test_a_call_inside_a_call() {
  static std::atomic<int> inside;
  inside = 0;
  Setting s(1, 400, [](const Problem& p, int64_t) {
    while (!g_seen->told && p.go_on(p.watch)) std::this_thread::yield();
  });
  const Outcome outcome = attend(kNotes, s.p, 2, [&] {
    if (g_seen->told) return true;
    inside += attend(kNotes, s.p, 2, Poll()) == Outcome::kDone && g_seen->whole == 1;
    g_seen->whole = 0;
    return g_seen->told = true;
  });
  check_done(s, outcome, "a call inside a call");
  CHECK(inside == 1, "the call inside is done");
}

#ifndef _WIN32
// Scratch is kept: each test asks for more than there was.
void test_no_memory() {
  static const std::thread::id caller = std::this_thread::get_id();
  const auto outcome_of = [](Setting& s, bool (*refuses)(size_t)) {
    g_scratch += size_t(1) << 20;
    g_refuses = refuses;
    const Outcome outcome = attend(kNotes, s.p, 2, Poll());
    g_refuses = nullptr;
    return outcome;
  };
  for (int64_t blocks : {1, 50}) {  // cut, and whole
    Setting none(blocks, 400);
    CHECK(outcome_of(none, [](size_t bytes) { return bytes == g_scratch; }) == Outcome::kNoMemory, "no scratch");
    CHECK(none.seen.folded == 0 && none.seen.whole == 0, "nothing is done without scratch");
    for (const bool others : {false, true}) {
      Setting one(blocks, 400);
      const Outcome outcome =
          others ? outcome_of(one, [](size_t b) { return b == g_scratch && std::this_thread::get_id() != caller; })
                 : outcome_of(one, [](size_t b) { return b == g_scratch && std::this_thread::get_id() == caller; });
      if (blocks == 1) check_done(one, outcome, "scratch in one thread");
      if (blocks != 1) CHECK(outcome == Outcome::kDone && one.seen.whole == blocks, "scratch in one thread");
    }
  }
  Setting asks(1, 1000, [](const Problem& p, int64_t) { wait_to_be_told(p); });
  g_scratch += size_t(1) << 20;
  g_refuses = [](size_t b) { return b == g_scratch && std::this_thread::get_id() == caller; };
  CHECK(attend(kNotes, asks.p, 2, told_to_stop) == Outcome::kInterrupted, "without scratch it still asks");
  g_refuses = nullptr;
  Setting s(1, 400);
  CHECK(outcome_of(s, [](size_t bytes) { return bytes == 8 * kStateBytes; }) == Outcome::kDone, "no states");
  CHECK(s.seen.whole == 1 && s.seen.folded == 0, "without states blocks are handed out whole");
}
#endif

// Pairs of each task beside the definition: rows of 4 to a panel, tiles of 5 keys.
void test_pairs() {
  std::vector<int64_t> spans, heads{0};
  Problem p{};
  p.heads = 1;
  p.queries = p.row_end = 30;
  p.keys = 40;
  p.d = p.dv = 1 << 20;
  p.key.head = p.value.head = heads.data();
  for (int64_t i = 0; i < p.queries; ++i) spans.insert(spans.end(), {i / 3, i % 6 == 5 ? i / 3 : i + 2});
  p.mask = {Mask::kSpans, {reinterpret_cast<const char*>(spans.data()), heads.data(), 16, 1}, 1, 0};
  for (int threads : {1, 2}) {
    std::vector<int64_t> want;
    const int64_t step = threads == 1 ? p.keys : kChunk;
    for (int64_t from = 0; from < (threads == 1 ? p.keys : 30); from += step) {
      want.push_back(0);
      for (int64_t tile = from; tile < std::min(from + step, p.keys); tile += 5) {
        for (int64_t row = 0; row < p.queries; row += 4) {
          int64_t low = tile + 5, high = tile, rows = 0;
          for (int64_t i = row; i < std::min(row + 4, p.queries); ++i, ++rows) {
            for (int64_t j = std::max(spans[2 * i], tile); j < std::min(spans[2 * i + 1], tile + 5); ++j) {
              low = std::min(low, j), high = std::max(high, j + 1);
            }
          }
          want.back() += rows * std::max<int64_t>(high - low, 0);
        }
      }
    }
    CHECK(task_pairs(kNotes, p, threads) == want, "%d threads", threads);
  }
}

}  // namespace

void test_chunks() {
  test_any_order();
  test_a_thread_lags();
  test_a_merge_lags();
  test_states_are_few();
  test_one_long_block();
  test_a_hole();
  test_interrupted_in_a_chunk();
  test_interrupted_while_waiting();
  test_a_poll_that_does_not_come_back();
  test_a_call_inside_a_call();
#ifndef _WIN32
  test_no_memory();
#endif
  test_pairs();
  printf("chunks: done\n");
}

}  // namespace regard
