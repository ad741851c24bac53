// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "regard/table.h"

namespace regard {

enum class Outcome { kDone, kInterrupted, kNoMemory, kForked };

// Called on the calling thread now and then; false stops the work and leaves the output unspecified.
using Poll = std::function<bool()>;

// What one worker does: it takes tasks until none is left or the problem's go_on says no.
using Work = std::function<void(const Problem&, char* scratch)>;

// Threads that a problem is worth, at most `threads`.
int worthwhile_threads(const Problem&, int threads);

// The same in the middle of a call, whose workers have the pool: 1.
int threads_now(const Problem&, int threads);

// Runs work(problem, scratch) in so many threads, or in fewer: it must take its tasks from what the workers share, and
// be right in one of them alone. Who takes a task is left to chance, and no result may depend on it.
Outcome with_workers(const Engine&, const Problem&, int workers, const Poll&, const Work&);

}  // namespace regard
