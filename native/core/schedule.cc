// SPDX-License-Identifier: Apache-2.0
#include "schedule.h"

#include <algorithm>

namespace regard {

Schedule::Schedule(const Problem& p) : row_begin_(p.row_begin), rows_per_head_(p.row_end - p.row_begin), tasks_(0) {
  if (rows_per_head_ <= 0) return;
  for (int64_t head = 0; head < p.heads;) {
    int64_t end = head + 1;
    while (end < p.heads && p.key.head[end] == p.key.head[head] && p.value.head[end] == p.value.head[head]) ++end;
    const int64_t rows = (end - head) * rows_per_head_;
    groups_.push_back({head, rows, tasks_});
    tasks_ += (rows + kBlockRows - 1) / kBlockRows;
    head = end;
  }
}

Block Schedule::block(int64_t task) const {
  const auto after = std::upper_bound(groups_.begin(), groups_.end(), task,
                                      [](int64_t t, const Group& g) { return t < g.first_task; });
  const Group& group = *(after - 1);
  const int64_t first = (task - group.first_task) * kBlockRows;
  Block block;
  block.rows = static_cast<int>(std::min<int64_t>(kBlockRows, group.rows - first));
  for (int r = 0; r < block.rows; ++r) {
    block.head[r] = group.head + (first + r) / rows_per_head_;
    block.query[r] = row_begin_ + (first + r) % rows_per_head_;
  }
  return block;
}

}  // namespace regard
