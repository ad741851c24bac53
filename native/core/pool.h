// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace regard {

// Runs job(worker) once for each worker in [0, workers), worker 0 on the calling thread, and returns when all are
// done. While worker 0 is done and others are not, meanwhile() is called some tens of times per second; it may fork,
// and may unwind the thread. Where the pool is busy with another caller, or the system gives no more threads, fewer
// workers run: a job must take its tasks from a shared counter, be right with worker 0 alone, and not throw. Not to be
// called by a job. False in a process that was forked while worker 0 ran or the caller waited: the others stayed in the
// parent, with what they had taken.
bool run_on_pool(int workers, const std::function<void(int)>& job, const std::function<void()>& meanwhile);

// Forks that lie between the first process and this one.
unsigned forks();

// To be called once, when the library is loaded: a forked child then forgets the pool and makes its own.
void prepare_for_fork();

}  // namespace regard
