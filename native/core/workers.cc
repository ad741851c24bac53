// SPDX-License-Identifier: Apache-2.0
#include "workers.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "aligned.h"
#include "cover.h"
#include "float_mode.h"
#include "pool.h"

namespace regard {
namespace {

constexpr auto kPollEvery = std::chrono::milliseconds(50);
// Multiply-adds that are worth waking a thread for: some tens of microseconds.
constexpr int64_t kWorthAThread = 1 << 20;

// Scratch of one thread. It is kept between calls, for small problems would spend their time in the allocator; a
// call inside a call (a signal handler's, made from within a poll) gets its own.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : nested_(busy()) {
    Memory& memory = nested_ ? own_ : kept();
    if (memory.bytes < bytes) {
      memory.data.reset();
      memory.data = aligned(bytes);
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
    Aligned data;
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

// What the workers of one call know of each other.
struct Team {
  std::atomic<Outcome> outcome{Outcome::kDone};  // another one stops them all, for good
  std::atomic<int> begun{0};
  std::atomic<bool> able{false};  // one of them has its scratch, and ends all tasks if need be
};

// Tells a worker whether to go on, and lets the calling thread ask now and then whether all should.
class Watch {
 public:
  Watch(const Poll& poll, Team& team, bool polls) : poll_(poll), team_(team), polls_(polls) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  static bool go_on(void* watch) { return static_cast<Watch*>(watch)->ask(); }

  bool ask() {
    if (polls_ && poll_ && team_.outcome == Outcome::kDone) {
      const auto now = std::chrono::steady_clock::now();
      if (now - polled_ >= kPollEvery) {
        polled_ = now;
        poll();
      }
    }
    return team_.outcome == Outcome::kDone;
  }

 private:
  void poll() {
    // Where it does not come back, this thread is unwound by force: the others might wait for what it had taken.
    struct Unwound {
      Team& team;
      bool came_back = false;
      ~Unwound() {
        if (!came_back) team.outcome = Outcome::kInterrupted;
      }
    } unwound{team_};
    const bool stop = !poll_();
    unwound.came_back = true;
    if (stop) {
      team_.outcome = Outcome::kInterrupted;
    } else if (forks() != forks_ && team_.begun > 1) {
      // A signal handler forked: the other workers stayed in the parent, with what they had taken, and their locks.
      team_.outcome = Outcome::kForked;
    }
  }

  const Poll& poll_;
  Team& team_;
  const bool polls_;
  const unsigned forks_ = forks();
  std::chrono::steady_clock::time_point polled_ = std::chrono::steady_clock::now();
};

}  // namespace

int worthwhile_threads(const Problem& p, int threads) {
  const double each = double(p.d + p.dv), work = each * pairs_up_to(p, threads * kWorthAThread / std::max(1.0, each));
  return std::max(1, std::min(threads, static_cast<int>(std::min(1 + work / kWorthAThread, 1e6))));
}

int threads_now(const Problem& p, int threads) { return Scratch::busy() ? 1 : worthwhile_threads(p, threads); }

Outcome with_workers(const Engine& engine, const Problem& p, int workers, const Poll& poll, const Work& work) {
  const size_t bytes = engine.scratch_bytes(p.d, p.dv);
  Team team;
  const auto take_part = [&](const Scratch& scratch, Watch& watch) {
    ++team.begun;
    if (!scratch.data()) return;
    team.able = true;
    const DefaultFloatMode mode;
    Problem watched = p;
    watched.go_on = &Watch::go_on;
    watched.watch = &watch;
    work(watched, scratch.data());
  };
  const Scratch scratch(bytes);  // until the others are done: a call from within a poll has one thread
  Watch watch(poll, team, true);
  const auto job = [&](int worker) {
    if (worker == 0) return take_part(scratch, watch);
    Watch own(poll, team, false);
    take_part(Scratch(bytes), own);
  };
  const bool whole = run_on_pool(workers, job, [&] { watch.ask(); });
  if (team.outcome != Outcome::kDone) return team.outcome;
  if (!whole) return Outcome::kForked;
  return team.able ? Outcome::kDone : Outcome::kNoMemory;
}

}  // namespace regard
