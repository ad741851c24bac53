// SPDX-License-Identifier: Apache-2.0
#include "cover.h"

#include <string.h>

#include <algorithm>

namespace regard {
namespace {

const char* row_of(const Mask& mask, int64_t head, int64_t query) {
  return mask.rows.data + mask.rows.head[head] + (query - mask.first_row) * mask.rows.row;
}

// Writes 1 for each key of [first, first + count) that a row of a bit or byte mask keeps, 0 for the others.
void expand(const Mask& mask, const char* row, int64_t first, int count, unsigned char* kept) {
  if (mask.kind == Mask::kBits) {
    for (int j = 0; j < count; ++j) {
      const int64_t key = first + j;
      kept[j] = (static_cast<unsigned char>(row[key >> 3]) >> (key & 7)) & 1;
    }
    return;
  }
  const char* at = row + first * mask.rows.col;
  for (int j = 0; j < count; ++j, at += mask.rows.col) kept[j] = *at != 0;
}

// Calls f(begin, end) for each span of the row, clipped to the tile and relative to it, in ascending order.
template <class F>
void each_span(const Mask& mask, int64_t head, int64_t query, int64_t first, int count, F f) {
  const auto* span = reinterpret_cast<const int64_t (*)[2]>(row_of(mask, head, query));
  for (int s = 0; s < mask.width; ++s) {
    const int64_t begin = std::max<int64_t>(span[s][0] - first, 0);
    const int64_t end = std::min<int64_t>(span[s][1] - first, count);
    if (begin < end) f(static_cast<int>(begin), static_cast<int>(end));
  }
}

// Whether a row of bits keeps no key of the tile, nor of the bytes at its ends: so with most tiles of a long row.
bool is_blank(const char* row, int64_t first, int count) {
  const char* byte = row + (first >> 3);
  const char* end = row + ((first + count + 7) >> 3);
  while (byte < end && *byte == 0) ++byte;
  return byte == end;
}

// The keys of the bytes between the first and the last that are not zero in any row.
Range hull_of_bits(const Problem& p, const Block& block) {
  const int64_t bytes = (p.keys + 7) >> 3;
  int64_t begin = bytes, end = 0;
  for (int r = 0; r < block.rows; ++r) {
    const char* row = row_of(p.mask, block.head[r], block.query[r]);
    int64_t first = 0, last = bytes;
    while (first < begin && row[first] == 0) ++first;
    while (last > end && row[last - 1] == 0) --last;
    begin = std::min(begin, first);
    end = std::max(end, last);
  }
  return {begin * 8, std::min(end * 8, p.keys)};
}

}  // namespace

Cover cover(const Mask& mask, int64_t head, int64_t query, int64_t first, int count) {
  if (mask.kind == Mask::kFull) return {0, count, true};
  Cover c{0, 0, true};
  if (mask.kind == Mask::kSpans) {
    each_span(mask, head, query, first, count, [&](int begin, int end) {
      if (c.begin == c.end) {
        c.begin = begin;
      } else {
        c.solid = false;  // spans never touch: there is a gap before this one
      }
      c.end = end;
    });
    return c;
  }
  const char* row = row_of(mask, head, query);
  if (mask.kind == Mask::kBits && is_blank(row, first, count)) return c;
  unsigned char kept[kMaxTile];
  expand(mask, row, first, count, kept);
  const auto* all = kept + count;
  const auto* begin = static_cast<const unsigned char*>(memchr(kept, 1, count));
  if (!begin) return c;
  const unsigned char* end = all;
  while (end[-1] == 0) --end;
  c.begin = static_cast<int>(begin - kept);
  c.end = static_cast<int>(end - kept);
  c.solid = memchr(begin, 0, end - begin) == nullptr;
  return c;
}

bool has_spans(const Mask& mask) { return mask.kind == Mask::kFull || mask.kind == Mask::kSpans; }

void flags(const Mask& mask, int64_t head, int64_t query, int64_t first, int begin, int end, unsigned char* kept) {
  expand(mask, row_of(mask, head, query), first + begin, end - begin, kept);
}

int dropped(const Mask& mask, int64_t head, int64_t query, int64_t first, int begin, int end, int (*runs)[2]) {
  int n = 0;
  const auto add = [&](int a, int b) {
    if (a < b) {
      runs[n][0] = a;
      runs[n][1] = b;
      ++n;
    }
  };
  if (mask.kind == Mask::kFull) return 0;
  int at = begin;
  each_span(mask, head, query, first, end, [&](int a, int b) {
    if (b <= begin) return;
    add(at, a);
    at = std::max(at, b);
  });
  add(at, end);
  return n;
}

Range span_of(const Mask& mask, int64_t head, int64_t query, int s) {
  const auto* span = reinterpret_cast<const int64_t (*)[2]>(row_of(mask, head, query));
  return {span[s][0], span[s][1]};
}

bool keeps(const Mask& mask, int64_t head, int64_t query, int64_t key) {
  const Cover c = cover(mask, head, query, key, 1);
  return c.begin < c.end;
}

Range hull(const Problem& p, const Block& block) {
  if (p.mask.kind == Mask::kBits) return hull_of_bits(p, block);
  if (p.mask.kind != Mask::kSpans) return {0, p.keys};
  Range all{p.keys, 0};
  for (int r = 0; r < block.rows; ++r) {
    for (int s = 0; s < p.mask.width; ++s) {
      const Range span = span_of(p.mask, block.head[r], block.query[r], s);
      if (span.empty()) continue;
      all.begin = std::min(all.begin, span.begin);
      all.end = std::max(all.end, span.end);
    }
  }
  return all;
}

TileCount count_tiles(const Problem& p, const Block& block, int tile) {
  TileCount n{0, 0, 0};
  for (int64_t first = 0; first < p.keys; first += tile) {
    const int count = static_cast<int>(std::min<int64_t>(tile, p.keys - first));
    bool any = false, all = true;
    for (int r = 0; r < block.rows; ++r) {
      const Cover c = cover(p.mask, block.head[r], block.query[r], first, count);
      any = any || c.begin < c.end;
      all = all && c.solid && c.begin == 0 && c.end == count;
    }
    ++(any ? n.visited : n.skipped);
    if (any && !all) ++n.partial;
  }
  return n;
}

}  // namespace regard
