// SPDX-License-Identifier: Apache-2.0
// The native entry points, free of Python.
#pragma once

#include <vector>

#include "cover.h"
#include "regard/table.h"
#include "workers.h"

namespace regard {

Outcome attend(const Engine&, const Problem&, int threads, const Poll&);

// Weights of the problem's rows for keys [begin, end); p.out has one column per key.
Outcome weights(const Engine&, const Problem&, int64_t begin, int64_t end, int threads, const Poll&);

TileCount count_tiles(const Engine&, const Problem&);

// What attend() takes beside its scratch: the states of chunks, where a problem is cut into them.
size_t chunk_bytes(const Engine&, const Problem&, int threads);

// The work of each task that attend() makes of a problem, in the order in which they are handed out.
std::vector<int64_t> task_pairs(const Engine&, const Problem&, int threads);

}  // namespace regard
