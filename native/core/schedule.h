// SPDX-License-Identifier: Apache-2.0
// A problem cut into tasks: integer arithmetic only.
#pragma once

#include <vector>

#include "regard/view.h"

namespace regard {

// Tasks of kBlockRows query rows. Consecutive heads that read the same keys and values are cut as one long list of
// rows, so that the query heads of a group, or the single queries of a decoding step, fill the lanes together.
class Schedule {
 public:
  explicit Schedule(const Problem&);
  int64_t tasks() const { return tasks_; }
  Block block(int64_t task) const;

 private:
  struct Group {
    int64_t head, rows, first_task;
  };
  std::vector<Group> groups_;
  int64_t row_begin_, rows_per_head_, tasks_;
};

}  // namespace regard
