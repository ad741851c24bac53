// SPDX-License-Identifier: Apache-2.0
#include "cover.h"

#include <string.h>

#include <algorithm>

namespace regard {
namespace {

const char* row_of(const Mask& mask, int64_t head, int64_t query) {
  return mask.rows.data + mask.rows.head[head] + (query - mask.first_row) * mask.rows.row;
}

// Bits [0, count) of a word, count in [0, 32].
uint32_t low_bits(int count) { return count < 32 ? (uint32_t(1) << count) - 1 : ~uint32_t(0); }

// Keys [first, first + count) of a row of bits, count at most 32.
uint32_t word_of_bits(const char* row, int64_t first, int count) {
  const char* byte = row + (first >> 3);
  const int skipped = static_cast<int>(first & 7), bytes = (skipped + count + 7) >> 3;
  uint64_t x = 0;
  for (int n = 0; n < bytes; ++n) x |= uint64_t(static_cast<unsigned char>(byte[n])) << (8 * n);
  return static_cast<uint32_t>(x >> skipped) & low_bits(count);
}

// Of a row of bytes. Eight neighbours at a time: each byte's bits fall into its lowest, and a product gathers those,
// byte n to bit 56 + n (without carries: no two terms meet).
uint32_t word_of_bytes(const char* at, ptrdiff_t col, int count) {
  uint32_t word = 0;
  int n = 0;
  for (; col == 1 && n + 8 <= count; n += 8) {
    uint64_t x = 0;
    for (int b = 0; b < 8; ++b) x |= uint64_t(static_cast<unsigned char>(at[n + b])) << (8 * b);
    x |= x >> 4;
    x |= x >> 2;
    x |= x >> 1;
    word |= static_cast<uint32_t>(((x & 0x0101010101010101) * 0x0102040810204080) >> 56) << n;
  }
  for (; n < count; ++n) word |= uint32_t(at[n * col] != 0) << n;
  return word;
}

int lowest_bit(uint32_t word) { return __builtin_ctz(word); }
int highest_bit(uint32_t word) { return 31 - __builtin_clz(word); }

Cover cover_of(const Kept& kept) {
  Cover c{0, 0, true};
  int many = 0;
  for (int n = 0; n < kMaxTile / 32; ++n) {
    const uint32_t word = kept.word[n];
    if (word == 0) continue;
    if (c.begin == c.end) c.begin = 32 * n + lowest_bit(word);
    c.end = 32 * n + highest_bit(word) + 1;
    many += __builtin_popcount(word);
  }
  c.solid = many == c.end - c.begin;
  return c;
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
  return cover_of(keep(mask, head, query, first, count));
}

Kept keep(const Mask& mask, int64_t head, int64_t query, int64_t first, int count) {
  Kept kept{};
  const auto set = [&](int begin, int end) {
    for (int n = begin / 32; n * 32 < end; ++n) {
      const int from = std::max(begin - 32 * n, 0), to = std::min(end - 32 * n, 32);
      kept.word[n] |= low_bits(to) & ~low_bits(from);
    }
  };
  if (mask.kind == Mask::kFull) {
    set(0, count);
  } else if (mask.kind == Mask::kSpans) {
    each_span(mask, head, query, first, count, set);
  } else {
    const char* row = row_of(mask, head, query);
    for (int n = 0; n * 32 < count; ++n) {
      const int width = std::min(count - 32 * n, 32);
      const int64_t at = first + 32 * n;
      kept.word[n] = mask.kind == Mask::kBits ? word_of_bits(row, at, width)
                                              : word_of_bytes(row + at * mask.rows.col, mask.rows.col, width);
    }
  }
  return kept;
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
