// SPDX-License-Identifier: Apache-2.0
#include "schedule.h"

#include <algorithm>

namespace regard {
namespace {

// Whether heads [head, end) read the rows of the mask that as many heads from `other` on read.
bool same_mask(const Mask& mask, int64_t other, int64_t head, int64_t end) {
  return mask.kind == Mask::kFull || std::equal(mask.rows.head + head, mask.rows.head + end, mask.rows.head + other);
}

}  // namespace

Schedule::Schedule(const Problem& p, int block_rows)
    : row_begin_(p.row_begin), rows_per_head_(p.row_end - p.row_begin), tasks_(0), block_rows_(block_rows) {
  if (rows_per_head_ <= 0) return;
  for (int64_t head = 0; head < p.heads;) {
    int64_t end = head + 1;
    while (end < p.heads && p.key.head[end] == p.key.head[head] && p.value.head[end] == p.value.head[head]) ++end;
    const int64_t rows = (end - head) * rows_per_head_;
    const bool alike =
        !groups_.empty() && groups_.back().rows == rows && same_mask(p.mask, groups_.back().head, head, end);
    groups_.push_back({head, rows, tasks_, alike ? groups_.back().alike : tasks_});
    tasks_ += (rows + block_rows_ - 1) / block_rows_;
    head = end;
  }
}

const Schedule::Group& Schedule::group_of(int64_t task) const {
  const auto after = std::upper_bound(groups_.begin(), groups_.end(), task,
                                      [](int64_t t, const Group& g) { return t < g.first_task; });
  return *(after - 1);
}

int64_t Schedule::first_alike(int64_t task) const {
  const Group& group = group_of(task);
  return task - group.first_task + group.alike;
}

Block Schedule::block(int64_t task) const {
  const Group& group = group_of(task);
  const int64_t first = (task - group.first_task) * block_rows_;
  Block block;
  block.rows = static_cast<int>(std::min<int64_t>(block_rows_, group.rows - first));
  block.alone = group.rows == 1;
  int64_t head = first / rows_per_head_, row = first % rows_per_head_;
  for (int r = 0; r < block.rows; ++r) {
    block.head[r] = group.head + head;
    block.query[r] = row_begin_ + row;
    if (++row == rows_per_head_) ++head, row = 0;
  }
  return block;
}

}  // namespace regard
