// SPDX-License-Identifier: Apache-2.0
#include "underway.h"

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <thread>

#ifndef _WIN32
#include <pthread.h>
#endif

namespace nb = nanobind;

namespace regard {
namespace {

// The end of the interpreter. A thread that then asks for the GIL is unwound by force, through frames that do not
// expect it (Python 3.14 lets it sleep instead). So, once the exit handlers run, a call of another thread than the
// main one stops its work and sleeps until the process is gone; and the exit waits for those that are on their way
// back to Python.
std::atomic<bool> g_closing{false};
std::atomic<int> g_calls{0}, g_asleep{0};
thread_local int t_calls = 0;  // of this thread: a signal handler's call is inside another

void sleep_until_exit() {
  ++g_asleep;
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

void close_down() {
  g_closing = true;
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  {
    nb::gil_scoped_release released;
    while (g_calls > g_asleep && std::chrono::steady_clock::now() < patience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (g_asleep > 0) nb::set_leak_warnings(false);  // what they hold is not a fault of reference counting
}

// Where Python runs its signal handlers. Of a forked child that is the thread that forked.
std::atomic<unsigned long> g_main_thread{0};

void find_main_thread() {
  const nb::object main = nb::module_::import_("threading").attr("main_thread")();
  g_main_thread = nb::cast<unsigned long>(main.attr("ident"));
}

bool on_main_thread() { return g_main_thread == PyThread_get_thread_ident(); }

void prepare_calls_for_fork() {
#ifndef _WIN32
  pthread_atfork(nullptr, nullptr, [] {
    g_main_thread = PyThread_get_thread_ident();
    g_calls = t_calls;
    g_asleep = 0;
  });
#endif
}

class Underway {
 public:
  Underway() { ++g_calls, ++t_calls; }
  ~Underway() { --g_calls, --t_calls; }
  Underway(const Underway&) = delete;
  Underway& operator=(const Underway&) = delete;
};

// Ctrl-C sets a flag that only the main thread may act upon, with the GIL.
bool no_signal() {
  nb::gil_scoped_acquire gil;
  return PyErr_CheckSignals() == 0;
}

bool not_closing() { return !g_closing; }

}  // namespace

void run(const std::function<Outcome(const Poll&)>& work) {
  const bool main = on_main_thread();
  const Poll poll = main ? no_signal : not_closing;
  Outcome outcome;
  const Underway underway;
  {
    nb::gil_scoped_release released;
    if (g_closing && !main) sleep_until_exit();
    outcome = work(poll);
    if (g_closing && !main) sleep_until_exit();
  }
  if (outcome == Outcome::kNoMemory) throw std::bad_alloc();
  if (outcome == Outcome::kInterrupted) throw nb::python_error();
  if (outcome == Outcome::kForked) {
    throw std::runtime_error(
        "regard: a signal handler forked this process in the middle of a call, whose other threads stayed in the "
        "parent: the result is incomplete; end the child within the handler, or call again");
  }
}

void prepare_calls() {
  find_main_thread();
  prepare_calls_for_fork();
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&close_down));
}

}  // namespace regard
