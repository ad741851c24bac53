// SPDX-License-Identifier: Apache-2.0
// The native entry points, free of Python.
#pragma once

#include <functional>

#include "cover.h"
#include "regard/table.h"

namespace regard {

enum class Outcome { kDone, kInterrupted, kNoMemory, kForked };

// Called on the calling thread now and then; false stops the work and leaves the output unspecified.
using Poll = std::function<bool()>;

Outcome attend(const Engine&, const Problem&, int threads, const Poll&);

// Weights of the problem's rows for keys [begin, end); p.out has one column per key.
Outcome weights(const Engine&, const Problem&, int64_t begin, int64_t end, int threads, const Poll&);

TileCount count_tiles(const Engine&, const Problem&);

}  // namespace regard
