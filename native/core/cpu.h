// SPDX-License-Identifier: Apache-2.0
// What was compiled, and what this CPU and this operating system allow.
#pragma once

#include <vector>

#include "regard/table.h"

namespace regard {

struct Target {
  const Table* table;
  bool usable;
  const char* why;
};

// From the lowest to the highest. The list and its verdicts do not change while the process lives.
const std::vector<Target>& targets();

// To be called before a usable target is used: null, or why it cannot be after all. Linux gives a process the tile
// registers of AMX when it asks, and from then on its signals need larger stacks: so it is asked for those who choose
// the target, and no one else.
const char* enable(const Target&);

}  // namespace regard
