// SPDX-License-Identifier: Apache-2.0
#include "pool.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#ifdef REGARD_X86
#include <immintrin.h>
#endif
#ifndef _WIN32
#include <pthread.h>
#endif

namespace regard {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(20);
// To wake a thread that sleeps takes 50 to 100 microseconds on a virtual machine, some 20 of them of the thread that
// wakes it (experiments/0025): for so long threads look whether they are wanted before they sleep.
constexpr auto kWakeful = std::chrono::microseconds(100);

std::atomic<unsigned> g_forks{0};

// A moment in which this thread leaves its core to another one's that shares it.
inline void pause() {
#if defined(REGARD_X86)
  _mm_pause();
#elif defined(REGARD_ARM)
  __asm__ volatile("yield");
#endif
}

// Whether it is so, now or in a little while. The processor is not offered to others, who would keep it for some
// milliseconds (experiments/0025).
template <class So>
bool soon(So so) {
  const auto end = std::chrono::steady_clock::now() + kWakeful;
  do {
    if (so()) return true;
    pause();
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

class Pool {
 public:
  // Without a value when another caller has the pool; else whether all workers are done.
  std::optional<bool> run(int helpers, const std::function<void(int)>& job, const std::function<void()>& meanwhile) {
    std::unique_lock<std::mutex> mine(callers_, std::try_to_lock);
    if (!mine) return std::nullopt;
    grow(helpers);
    {
      std::lock_guard<std::mutex> lock(state_);
      job_ = &job;
      wanted_ = helpers < threads_ ? helpers : threads_;
      running_ = wanted_;
      ++round_;
    }
    wake_.notify_all();
    const unsigned forks = g_forks;
    const Finish finish{*this, forks};  // also where a forced unwind leaves: helpers still use this frame
    job(0);
    while (forks == g_forks && !idle_soon()) meanwhile();
    return forks == g_forks;
  }

 private:
  struct Finish {
    Pool& pool;
    unsigned forks;
    ~Finish() {
      if (forks != g_forks) return;
      while (!pool.idle_soon()) continue;
      pool.job_ = nullptr;
    }
  };

  // Whether all helpers are done, for which it waits a little.
  bool idle_soon() {
    const auto idle = [&] { return running_ == 0; };
    if (soon(idle)) return true;
    std::unique_lock<std::mutex> lock(state_);
    if (idle_.wait_for(lock, kPatience, idle)) return true;
    wake_.notify_all();  // glibc before 2.41 can lose the signal of a condition (its bug 25847)
    return false;
  }

  void grow(int helpers) {
    for (; threads_ < helpers; ++threads_) {
      try {
        std::thread(&Pool::serve, this, threads_ + 1, round_.load()).detach();
      } catch (const std::system_error&) {
        return;
      }
    }
  }

  void serve(int worker, unsigned long round) {
    const auto called = [&] { return round_ != round; };
    for (;;) {
      soon(called);
      std::unique_lock<std::mutex> lock(state_);
      wake_.wait(lock, called);
      round = round_;
      if (worker > wanted_) continue;
      const std::function<void(int)>& job = *job_;
      lock.unlock();
      job(worker);
      if (--running_ > 0) continue;
      lock.lock();  // else the caller could look, be told, and only then sleep
      idle_.notify_one();
    }
  }

  std::mutex callers_, state_;
  std::condition_variable wake_, idle_;
  const std::function<void(int)>* job_ = nullptr;
  int threads_ = 0;  // written by the caller that holds callers_
  int wanted_ = 0;
  // Changed under state_, or read once more under it, by whoever may sleep; looked at without it.
  std::atomic<int> running_{0};
  std::atomic<unsigned long> round_{0};
};

// Never destroyed: its threads sleep on it until the process ends. A forked child has none of the threads, and
// maybe a locked mutex, so it forgets the pool and makes its own at its first call.
std::atomic<Pool*> g_pool{nullptr};

Pool& pool() {
  Pool* now = g_pool.load(std::memory_order_acquire);
  if (now) return *now;
  Pool* fresh = new Pool;
  if (g_pool.compare_exchange_strong(now, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;
  return *now;
}

}  // namespace

unsigned forks() { return g_forks; }

void prepare_for_fork() {
#ifndef _WIN32
  pthread_atfork(nullptr, nullptr, [] {
    g_pool.store(nullptr);
    ++g_forks;
  });
#endif
}

bool run_on_pool(int workers, const std::function<void(int)>& job, const std::function<void()>& meanwhile) {
  if (workers > 1) {
    if (const std::optional<bool> done = pool().run(workers - 1, job, meanwhile)) return *done;
  }
  job(0);
  return true;
}

}  // namespace regard
