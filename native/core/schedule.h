// SPDX-License-Identifier: Apache-2.0
// A problem cut into tasks: integer arithmetic only.
#pragma once

#include <vector>

#include "regard/view.h"

namespace regard {

// Tasks of some query rows, at most kBlockRows. Consecutive heads that read the same keys and values are cut as one
// long list of rows, so that the query heads of a group, or the single queries of a decoding step, fill the lanes
// together.
class Schedule {
 public:
  Schedule(const Problem&, int block_rows);
  int64_t tasks() const { return tasks_; }
  Block block(int64_t task) const;
  // The first task whose rows are those of this one but for their heads, which read the same rows of the mask.
  int64_t first_alike(int64_t task) const;

 private:
  struct Group {
    int64_t head, rows, first_task;
    int64_t alike;  // the first task of the first group that this one is like
  };
  const Group& group_of(int64_t task) const;
  std::vector<Group> groups_;
  int64_t row_begin_, rows_per_head_, tasks_, block_rows_;
};

}  // namespace regard
