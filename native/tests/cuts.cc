// SPDX-License-Identifier: Apache-2.0
// How a problem is cut: its blocks, and what their rows reach of the keys.
#include <algorithm>
#include <vector>

#include "check.h"
#include "cover.h"
#include "schedule.h"

namespace regard {
namespace {

void test_schedule() {
  for (int heads : {0, 1, 2, 5}) {
    for (int group : {1, 2, 5}) {
      for (int64_t rows : {0, 1, kBlockRows - 1, kBlockRows, kBlockRows + 1, 2 * kBlockRows + 2}) {
        std::vector<int64_t> kv(heads);
        for (int h = 0; h < heads; ++h) kv[h] = h / group;
        Problem p{};
        p.heads = heads;
        p.key.head = p.value.head = kv.data();
        p.row_begin = 3;
        p.row_end = 3 + rows;
        std::vector<int> seen(size_t(heads * rows), 0);
        const int most = group == 2 ? kBlockRows / 2 : kBlockRows;
        const Schedule schedule(p, most);
        for (int64_t task = 0; task < schedule.tasks(); ++task) {
          const Block b = schedule.block(task);
          CHECK(b.rows > 0 && b.rows <= most, "%d rows", b.rows);
          const auto alike = std::count(kv.begin(), kv.end(), kv[b.head[0]]);
          CHECK(b.alone == (alike * rows == 1), "%d rows, alone %d", b.rows, b.alone);
          for (int r = 0; r < b.rows; ++r) {
            CHECK(kv[b.head[r]] == kv[b.head[0]], "a block reads one kv head");
            ++seen[size_t(b.head[r] * rows + b.query[r] - 3)];
          }
        }
        for (int n : seen) CHECK(n == 1, "a row was cut %d times", n);
      }
    }
  }
}

// Six kv heads of two query heads each, and which kv head's tasks are the first that are like theirs.
void test_tasks_that_are_alike() {
  const int64_t kv[] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
  const struct {
    int64_t mask_rows[12];
    const char* want;
  } cases[] = {{{}, "000000"},
               {{0, 8, 16, 24, 32, 40, 48, 56, 0, 0, 0, 0}, "012344"},
               {{0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0}, "002333"}};
  for (const auto& [mask_rows, want] : cases) {
    Problem p{};
    p.heads = 12;
    p.key.head = p.value.head = kv;
    p.row_end = kBlockRows + 1;
    p.mask = {Mask::kSpans, {nullptr, mask_rows, 16, 1}, 1, 0};
    const Schedule schedule(p, kBlockRows);
    const int64_t each = schedule.tasks() / 6;
    for (int64_t task = 0; task < schedule.tasks(); ++task) {
      const int64_t like = schedule.first_alike(task);
      CHECK(like == (want[task / each] - '0') * each + task % each, "task %d: %d", static_cast<int>(task),
            static_cast<int>(like));
    }
    p.mask = {};
    CHECK(Schedule(p, kBlockRows).first_alike(schedule.tasks() - 1) == each - 1, "of a full mask nothing is read");
  }
}

// Of two spans per row, keys that no row keeps between them are not counted where they part all first from all second.
void test_likely_pairs() {
  const int64_t spans[][2][2] = {{{0, 10}, {90, 95}}, {{5, 12}, {91, 99}}, {{3, 3}, {0, 0}}, {{0, 99}, {0, 0}}};
  const int64_t head = 0;
  Problem p{};
  p.keys = 100;
  p.mask = {Mask::kSpans, {reinterpret_cast<const char*>(spans), &head, sizeof spans[0], 1}, 2, 0};
  const auto likely = [&](std::vector<int64_t> rows) {
    Block block{};
    for (int64_t row : rows) block.query[block.rows++] = row;
    return static_cast<int>(likely_pairs(p, block));
  };
  CHECK(likely({0}) == 15 && likely({0, 1}) == 2 * (12 + 9), "%d, %d", likely({0}), likely({0, 1}));
  CHECK(likely({2}) == 0 && likely({0, 2}) == 2 * 15, "%d, %d", likely({2}), likely({0, 2}));
  CHECK(likely({0, 3}) == 2 * 99, "%d: no more than the hull", likely({0, 3}));
  p.mask.kind = Mask::kBits;
  CHECK(likely({0, 1}) == 2 * 100, "%d: of bits all are looked at", likely({0, 1}));
}

void test_ranges_that_meet_are_joined() {
  std::vector<Range> ranges{{7, 9}, {0, 3}, {3, 5}, {8, 8}, {1, 2}, {20, 21}};
  join(ranges);
  CHECK(ranges.size() == 3 && ranges[0].begin == 0 && ranges[0].end == 5 && ranges[1].begin == 7 &&
            ranges[1].end == 9 && ranges[2].begin == 20,
        "%d ranges", static_cast<int>(ranges.size()));
}

void test_pairs_up_to() {
  const int64_t spans[][2][2] = {{{0, 10}, {90, 95}}, {{5, 12}, {0, 0}}, {{3, 3}, {0, 0}}}, heads[] = {0, 0};
  Problem p{};
  p.heads = 2;
  p.row_end = 3;
  p.keys = 100;
  p.mask = {Mask::kSpans, {reinterpret_cast<const char*>(spans), heads, sizeof spans[0], 1}, 2, 0};
  CHECK(pairs_up_to(p, 1e9) == 2 * 22, "%g", pairs_up_to(p, 1e9));
  CHECK(pairs_up_to(p, 15) == 15 && pairs_up_to(p, 16) == 22, "%g, %g", pairs_up_to(p, 15), pairs_up_to(p, 16));
  p.mask = {};
  CHECK(pairs_up_to(p, 1) == 600, "%g", pairs_up_to(p, 1));
}

// What rows reach of some keys, a chunk's for example: never more than these, and for bits whole bytes.
void test_reach() {
  constexpr int kKeys = 101, kRowBytes = 13, kRows = 3;
  std::vector<int64_t> heads{0}, spans{30, 70, 2, 5, 50, 101};
  std::vector<unsigned char> bits(kRows * kRowBytes);
  Block block{};
  block.rows = kRows;
  Problem p{};
  p.keys = kKeys;
  for (int64_t r = 0; r < kRows; ++r) {
    block.query[r] = r;
    for (int64_t j = spans[2 * r]; j < spans[2 * r + 1]; ++j) {
      if (j % 3 == 0) bits[r * kRowBytes + j / 8] |= static_cast<unsigned char>(1 << j % 8);
    }
  }
  for (const Mask::Kind kind : {Mask::kFull, Mask::kSpans, Mask::kBits, Mask::kBytes}) {
    const void* const data = kind == Mask::kSpans ? static_cast<const void*>(spans.data()) : bits.data();
    p.mask = {kind, {static_cast<const char*>(data), heads.data(), kind == Mask::kSpans ? 16 : kRowBytes, 1}, 1, 0};
    for (const Range keys : {Range{0, 101}, Range{0, 48}, Range{48, 96}, Range{96, 101}, Range{0, 24}, Range{16, 24}}) {
      const Reach found = reach(p, block, 0, kRows, keys);
      Range want = keys;
      if (kind == Mask::kSpans || kind == Mask::kBits) {
        const int64_t unit = kind == Mask::kBits ? 8 : 1;
        want = {keys.end, keys.begin};
        for (int64_t j = keys.begin; j < keys.end; ++j) {
          bool any = false;
          for (int r = 0; r < kRows; ++r) any = any || keeps(p.mask, 0, r, j);
          if (any) want = {std::min(want.begin, j / unit * unit), std::min((j / unit + 1) * unit, keys.end)};
        }
      }
      const Range hull = found.hull, common = found.common;
      CHECK(hull.empty() ? want.empty() : hull.begin == want.begin && hull.end == want.end, "mask %d: keys %d to %d",
            kind, static_cast<int>(hull.begin), static_cast<int>(hull.end));
      for (int64_t j = common.begin; j < common.end; ++j) {
        for (int r = 0; r < kRows; ++r) CHECK(keeps(p.mask, 0, r, j), "mask %d: row %d drops a common key", kind, r);
      }
    }
  }
}

// The words of several rows at once: those of each row alone, and what they have in common.
void test_keep() {
  constexpr int kRows = 5, kKeys = 300, kWord = 7;
  int64_t spans[kRows][2][2] = {
      {{0, 300}, {0, 0}}, {{3, 97}, {98, 140}}, {{0, 0}, {0, 0}}, {{96, 192}, {200, 201}}, {{0, 31}, {32, 299}}};
  std::vector<unsigned char> bytes(kRows * kKeys);
  for (size_t n = 0; n < bytes.size(); ++n)
    bytes[n] = n % 7 < 3 || n / kKeys == 1 ? static_cast<unsigned char>(n % 3 + 1) : 0;
  const int64_t heads[1] = {0}, head[kRows] = {}, query[kRows] = {4, 0, 1, 3, 2};
  const char* const data[] = {nullptr, reinterpret_cast<const char*>(spans),
                              reinterpret_cast<const char*>(bytes.data()), reinterpret_cast<const char*>(bytes.data())};
  const ptrdiff_t row[] = {0, sizeof spans[0], (kKeys + 7) / 8, kKeys};
  for (int kind = 0; kind < 4; ++kind) {
    const Mask mask = {static_cast<Mask::Kind>(kind), {data[kind], heads, row[kind], 1}, 2, 0};
    for (int first : {0, 96, 192}) {
      for (int count : {96, 95, 64, 33, 32, 1}) {
        uint32_t kept[3 * kWord];
        const Common common = keep(mask, head, query, kRows, first, count, kept, kWord);
        for (int j = 0; j < 96; ++j) {
          bool any = false, every = true;
          for (int r = 0; r < kRows; ++r) {
            const bool want = j < count && keeps(mask, 0, query[r], first + j);
            CHECK((kept[j / 32 * kWord + r] >> j % 32 & 1) == want, "mask %d row %d key %d", kind, r, first + j);
            any = any || want;
            every = every && want;
          }
          CHECK((common.any.word[j / 32] >> j % 32 & 1) == any, "mask %d, any of key %d", kind, first + j);
          CHECK((common.every.word[j / 32] >> j % 32 & 1) == every, "mask %d, every of key %d", kind, first + j);
        }
      }
    }
  }
}

}  // namespace

void test_cuts() {
  test_schedule();
  test_tasks_that_are_alike();
  test_likely_pairs();
  test_ranges_that_meet_are_joined();
  test_pairs_up_to();
  test_reach();
  test_keep();
  printf("cuts: done\n");
}

}  // namespace regard
