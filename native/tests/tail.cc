// SPDX-License-Identifier: Apache-2.0
// The end of a call, when the calling thread has no work left and another still computes: it asks on, whatever comes.
#ifndef _WIN32
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <atomic>
#include <chrono>
#include <thread>

#include "attend.h"
#include "check.h"
#include "pool.h"

namespace regard {
namespace {

std::thread::id g_caller;
std::atomic<bool> g_other_began, g_other_may_end;
std::atomic<int> g_blocks, g_cut_short;

// Two blocks: the calling thread's ends once another thread has the other one. That takes ten seconds, unless it is
// told to stop or may end.
void attend_block(const Problem& p, const Block&, char*) {
  if (std::this_thread::get_id() == g_caller) {
    while (!g_other_began) std::this_thread::yield();
  } else {
    g_other_began = true;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    bool go_on = true;
    while (go_on && !g_other_may_end && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
      go_on = p.go_on(p.watch);
    }
    if (!go_on) ++g_cut_short;
  }
  ++g_blocks;
}

const Engine kTwoBlocks = {4,
                           kBlockRows,
                           [](int, int) { return 5; },
                           [](int, int) { return int64_t(10); },
                           [](int, int) { return size_t(64); },
                           [](int, int) { return size_t(64); },
                           attend_block,
                           nullptr,
                           nullptr,
                           nullptr,
                           nullptr};

Outcome call(const Poll& poll) {
  static const int64_t heads[] = {0, 1};
  Problem p{};
  p.key.head = p.value.head = heads;
  p.heads = 2;
  p.queries = p.row_end = p.keys = 1;
  p.d = p.dv = 1 << 24;
  return attend(kTwoBlocks, p, 2, poll);
}

void begin() {
  g_caller = std::this_thread::get_id();
  g_other_began = g_other_may_end = false;
  g_blocks = g_cut_short = 0;
}

void test_interrupted() {
  begin();
  const Outcome outcome = call([] { return false; });
  CHECK(outcome == Outcome::kInterrupted && g_cut_short == 1, "outcome %d", static_cast<int>(outcome));
}

void test_a_poll_that_does_not_come_back() {
  begin();
  bool unwound = false;
  try {
    call([]() -> bool { throw 1; });
  } catch (int) {
    unwound = true;
  }
  CHECK(unwound && g_cut_short == 1 && g_blocks == 2, "%d blocks are done with", static_cast<int>(g_blocks));
}

// The pool and the caller's scratch are taken: such a call does all by itself.
void test_a_call_inside_a_call() {
  begin();
  Outcome inside = Outcome::kInterrupted;
  const Outcome outcome = call([&] {
    if (!g_other_may_end) inside = call(Poll());
    return g_other_may_end = true;
  });
  CHECK(outcome == Outcome::kDone && inside == Outcome::kDone && g_blocks == 4 && g_cut_short == 0, "%d blocks",
        static_cast<int>(g_blocks));
}

#ifndef _WIN32
// The child has no other thread to wait for, and says so; the parent's result is whole.
void test_a_fork() {
  begin();
  pid_t child = -1;
  const Outcome outcome = call([&] {
    if (child == -1 && (child = fork()) == 0) alarm(20);
    return g_other_may_end = true;
  });
  if (child == 0) _exit(outcome == Outcome::kForked ? 0 : 1);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "the child's status is %d", status);
  CHECK(outcome == Outcome::kDone && g_blocks == 2, "outcome %d", static_cast<int>(outcome));
}
#endif

}  // namespace

void test_tail() {
  test_interrupted();
  test_a_poll_that_does_not_come_back();
  test_a_call_inside_a_call();
#ifndef _WIN32
  prepare_for_fork();
  test_a_fork();
#endif
  printf("tail: done\n");
}

}  // namespace regard
