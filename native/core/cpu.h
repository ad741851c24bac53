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

}  // namespace regard
