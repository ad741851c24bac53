// SPDX-License-Identifier: Apache-2.0
// Calls of the engine without the GIL: what they do about signals, the end of the interpreter, and forks.
#pragma once

#include <functional>

#include "workers.h"

namespace regard {

// Runs work(poll) without the GIL, and raises what its outcome means.
void run(const std::function<Outcome(const Poll&)>& work);

// To be called once, when the module is loaded.
void prepare_calls();

}  // namespace regard
