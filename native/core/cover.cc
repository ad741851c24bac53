// SPDX-License-Identifier: Apache-2.0
#include "cover.h"

#include <string.h>

#include <algorithm>
#include <vector>

namespace regard {
namespace {

const char* row_of(const Mask& mask, int64_t head, int64_t query) {
  return mask.rows.data + mask.rows.head[head] + (query - mask.first_row) * mask.rows.row;
}

// Bits [0, count) of a word, count in [0, 32].
uint32_t low_bits(int count) { return count < 32 ? (uint32_t(1) << count) - 1 : ~uint32_t(0); }

// The part of bits [begin, end) that lies in one word.
uint32_t span_in_word(int begin, int end) { return low_bits(std::min(end, 32)) & ~low_bits(std::max(begin, 0)); }

// Keys [first, first + count) of a row of bits, count at most 32.
uint32_t word_of_bits(const char* row, int64_t first, int count) {
  const char* byte = row + (first >> 3);
  const int skipped = static_cast<int>(first & 7), bytes = (skipped + count + 7) >> 3;
  uint64_t x = 0;
  if (bytes == 4) {
    uint32_t four;  // one load: half of x written and all of it read would wait for memory
    memcpy(&four, byte, sizeof four);
    x = four;  // every target is little-endian
  } else {
    memcpy(&x, byte, static_cast<size_t>(bytes));
  }
  return static_cast<uint32_t>(x >> skipped) & low_bits(count);
}

// Eight bytes as bits 0 to 7. A product gathers the lowest bit of byte n into bit 56 + n, and no two terms meet; bytes
// above 1 first fall into theirs.
uint32_t gather(uint64_t x) {
  if (x & 0xfefefefefefefefe) {
    x |= x >> 4;
    x |= x >> 2;
    x |= x >> 1;
    x &= 0x0101010101010101;
  }
  return static_cast<uint32_t>((x * 0x0102040810204080) >> 56);
}

// Of a row of bytes.
uint32_t word_of_bytes(const char* at, ptrdiff_t col, int count) {
  uint32_t word = 0;
  int n = 0;
  for (; col == 1 && n + 8 <= count; n += 8) {
    uint64_t x;
    memcpy(&x, at + n, sizeof x);  // every target is little-endian
    word |= gather(x) << n;
  }
  for (; n < count; ++n) word |= uint32_t(at[n * col] != 0) << n;
  return word;
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

// Of these keys, those of the bytes between the first and the last that are not zero in any row.
Range hull_of_bits(const Problem& p, const Block& block, int first, int rows, Range keys) {
  const int64_t from = keys.begin >> 3, to = (keys.end + 7) >> 3;
  int64_t begin = to, end = from;
  for (int r = first; r < first + rows; ++r) {
    const char* row = row_of(p.mask, block.head[r], block.query[r]);
    int64_t low = from, high = to;
    while (low < begin && row[low] == 0) ++low;
    while (high > end && row[high - 1] == 0) --high;
    begin = std::min(begin, low);
    end = std::max(end, high);
  }
  return {begin * 8, std::min(end * 8, keys.end)};
}

int lowest_bit(uint32_t word) { return __builtin_ctz(word); }
int highest_bit(uint32_t word) { return 31 - __builtin_clz(word); }

}  // namespace

Cover cover_of(const Kept& kept) {
  Cover c{0, 0, true};
  for (int n = 0; n < kTileWords; ++n) {
    const uint32_t word = kept.word[n];
    if (word == 0) continue;
    if (c.begin == c.end) c.begin = 32 * n + lowest_bit(word);
    c.end = 32 * n + highest_bit(word) + 1;
  }
  for (int n = c.begin / 32; n * 32 < c.end; ++n) {
    c.solid = c.solid && kept.word[n] == span_in_word(c.begin - 32 * n, c.end - 32 * n);
  }
  return c;
}

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
  uint32_t kept[kTileWords];
  return cover_of(keep(mask, &head, &query, 1, first, count, kept, 1).any);
}

namespace {

// What rows have in common. Apart from where their words are made: GCC would read those back in pairs, and a load of
// what two stores have written waits for both.
Common common_of(int rows, const uint32_t* kept, ptrdiff_t word) {
  Common common;
  for (int n = 0; n < kTileWords; ++n) {
    uint32_t any = 0, every = ~uint32_t(0);
    for (int r = 0; r < rows; ++r) {
      any |= kept[n * word + r];
      every &= kept[n * word + r];
    }
    common.any.word[n] = any;
    common.every.word[n] = every;
  }
  return common;
}

void keep_spans(const Mask& mask, int64_t head, int64_t query, int64_t first, int count, uint32_t* kept,
                ptrdiff_t word) {
  for (int n = 0; n < kTileWords; ++n) kept[n * word] = 0;
  each_span(mask, head, query, first, count, [&](int begin, int end) {
    for (int n = begin / 32; n * 32 < end; ++n) kept[n * word] |= span_in_word(begin - 32 * n, end - 32 * n);
  });
}

// Of a row of bits or bytes: read(key, keys) is one of its words.
template <class F>
inline void keep_words(int64_t first, int count, uint32_t* kept, ptrdiff_t word, F read) {
  for (int n = 0; n < kTileWords; ++n) {
    const int keys = std::min(count - 32 * n, 32);
    kept[n * word] = keys == 32 ? read(first + 32 * n, 32) : keys > 0 ? read(first + 32 * n, keys) : 0;
  }
}

}  // namespace

Common keep(const Mask& mask, const int64_t* head, const int64_t* query, int rows, int64_t first, int count,
            uint32_t* kept, ptrdiff_t word) {
  const ptrdiff_t col = mask.rows.col;
  for (int r = 0; r < rows; ++r) {
    if (mask.kind == Mask::kFull) {
      keep_words(first, count, kept + r, word, [](int64_t, int keys) { return low_bits(keys); });
    } else if (mask.kind == Mask::kSpans) {
      keep_spans(mask, head[r], query[r], first, count, kept + r, word);
    } else {
      const char* const at = row_of(mask, head[r], query[r]);
      if (mask.kind == Mask::kBits) {
        keep_words(first, count, kept + r, word, [=](int64_t key, int keys) { return word_of_bits(at, key, keys); });
      } else {
        keep_words(first, count, kept + r, word,
                   [=](int64_t key, int keys) { return word_of_bytes(at + key * col, col, keys); });
        // The next tile's, which no stream of the processor's foresees. As numbers: behind the last there may be no
        // array.
        const uintptr_t next = reinterpret_cast<uintptr_t>(at) + uintptr_t((first + count) * col);
        __builtin_prefetch(reinterpret_cast<const void*>(next));
        __builtin_prefetch(reinterpret_cast<const void*>(next + uintptr_t((count - 1) * col)));
      }
    }
  }
  return common_of(rows, kept, word);
}

Range span_of(const Mask& mask, int64_t head, int64_t query, int s) {
  const auto* span = reinterpret_cast<const int64_t (*)[2]>(row_of(mask, head, query));
  return {span[s][0], span[s][1]};
}

bool keeps(const Mask& mask, int64_t head, int64_t query, int64_t key) {
  const Cover c = cover(mask, head, query, key, 1);
  return c.begin < c.end;
}

Reach reach(const Problem& p, const Block& block, int first, int rows, Range keys) {
  if (p.mask.kind == Mask::kFull) return {keys, keys};
  if (p.mask.kind == Mask::kBits) return {hull_of_bits(p, block, first, rows, keys), {0, 0}};
  if (p.mask.kind == Mask::kBytes) return {keys, {0, 0}};
  Reach all{{keys.end, keys.begin}, keys};
  for (int r = first; r < first + rows; ++r) {
    Range longest{0, 0};
    for (int s = 0; s < p.mask.width; ++s) {
      const Range whole = span_of(p.mask, block.head[r], block.query[r], s);
      const Range span{std::max(whole.begin, keys.begin), std::min(whole.end, keys.end)};
      if (span.empty()) continue;
      all.hull.begin = std::min(all.hull.begin, span.begin);
      all.hull.end = std::max(all.hull.end, span.end);
      if (span.end - span.begin > longest.end - longest.begin) longest = span;
    }
    all.common.begin = std::max(all.common.begin, longest.begin);
    all.common.end = std::min(all.common.end, longest.end);
  }
  return all;
}

Range hull(const Problem& p, const Block& block, Range keys) { return reach(p, block, 0, block.rows, keys).hull; }

std::vector<Range> reached(const Problem& p, const Block& block) {
  std::vector<Range> found;
  if (p.mask.kind != Mask::kSpans) {
    found.push_back(hull(p, block, {0, p.keys}));
    if (found.back().empty()) found.clear();
    return found;
  }
  for (int s = 0; s < p.mask.width; ++s) {
    Range these{p.keys, 0};
    for (int r = 0; r < block.rows; ++r) {
      const Range span = span_of(p.mask, block.head[r], block.query[r], s);
      if (span.empty()) continue;
      these.begin = std::min(these.begin, span.begin);
      these.end = std::max(these.end, span.end);
    }
    if (!these.empty()) found.push_back(these);
  }
  join(found);
  return found;
}

void join(std::vector<Range>& ranges) {
  std::sort(ranges.begin(), ranges.end(), [](Range x, Range y) { return x.begin < y.begin; });
  size_t last = 0;
  for (size_t n = 1; n < ranges.size(); ++n) {
    if (ranges[n].begin <= ranges[last].end) {
      ranges[last].end = std::max(ranges[last].end, ranges[n].end);
    } else {
      ranges[++last] = ranges[n];
    }
  }
  if (!ranges.empty()) ranges.resize(last + 1);
}

int64_t likely_pairs(const Problem& p, const Block& block) {
  if (p.mask.kind != Mask::kSpans) return block.rows * p.keys;
  int64_t keys = 0;
  for (const Range& range : reached(p, block)) keys += range.end - range.begin;
  return block.rows * keys;
}

double pairs_up_to(const Problem& p, double enough) {
  if (p.mask.kind != Mask::kSpans) return double(p.heads) * double(p.row_end - p.row_begin) * double(p.keys);
  double pairs = 0;
  for (int64_t head = 0; head < p.heads; ++head) {
    for (int64_t query = p.row_begin; query < p.row_end && pairs < enough; ++query) {
      for (int s = 0; s < p.mask.width; ++s) {
        const Range span = span_of(p.mask, head, query, s);
        if (!span.empty()) pairs += double(span.end - span.begin);
      }
    }
  }
  return pairs;
}

namespace {

// Of a mask that is looked at pair by pair.
void count_each_tile(const Problem& p, const Block& block, int tile, TileCount& total) {
  for (int64_t first = 0; first < p.keys; first += tile) {
    const int count = static_cast<int>(std::min<int64_t>(tile, p.keys - first));
    bool any = false, all = true;
    for (int r = 0; r < block.rows; ++r) {
      const Cover c = cover(p.mask, block.head[r], block.query[r], first, count);
      any = any || c.begin < c.end;
      all = all && c.solid && c.begin == 0 && c.end == count;
    }
    ++(any ? total.visited : total.skipped);
    if (any && !all) ++total.partial;
  }
}

// From this tile on, so many rows more see the tiles, and so many more keep all of them.
struct Edge {
  int64_t tile;
  int sees, keeps;
};

// A span drops no tile that it covers: between two edges all tiles are alike, however many there are.
void count_between_edges(const Problem& p, const Block& block, int tile, TileCount& total) {
  const int64_t tiles = (p.keys + tile - 1) / tile;
  std::vector<Edge> edges;
  for (int r = 0; r < block.rows; ++r) {
    int64_t counted = 0;  // tiles below are counted as seen by this row
    for (int s = 0; s < p.mask.width; ++s) {
      const Range span = span_of(p.mask, block.head[r], block.query[r], s);
      if (span.empty()) continue;
      const int64_t first = std::max(span.begin / tile, counted), last = (span.end + tile - 1) / tile;
      if (first < last) {
        edges.push_back({first, 1, 0});
        edges.push_back({last, -1, 0});
        counted = last;
      }
      const int64_t from = (span.begin + tile - 1) / tile, to = span.end == p.keys ? tiles : span.end / tile;
      if (from < to) {
        edges.push_back({from, 0, 1});
        edges.push_back({to, 0, -1});
      }
    }
  }
  edges.push_back({tiles, 0, 0});
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.tile < b.tile; });
  int sees = 0, keeps = 0;
  int64_t at = 0;
  for (const Edge& edge : edges) {
    (sees ? total.visited : total.skipped) += edge.tile - at;
    if (sees && keeps < block.rows) total.partial += edge.tile - at;
    at = edge.tile;
    sees += edge.sees;
    keeps += edge.keeps;
  }
}

}  // namespace

void count_tiles(const Problem& p, const Block& block, int tile, TileCount& total) {
  if (p.mask.kind == Mask::kFull) {
    total.visited += (p.keys + tile - 1) / tile;
  } else if (p.mask.kind == Mask::kSpans) {
    count_between_edges(p, block, tile, total);
  } else {
    count_each_tile(p, block, tile, total);
  }
}

int64_t count_pairs(const Problem& p, const Block& block, Range keys, int tile, int panel_rows) {
  int64_t pairs = 0;
  for (int64_t first = keys.begin; first < keys.end; first += tile) {
    const int count = static_cast<int>(std::min<int64_t>(tile, keys.end - first));
    for (int panel = 0; panel < block.rows; panel += panel_rows) {
      const int rows = std::min(panel_rows, block.rows - panel);
      int begin = count, end = 0;
      for (int r = panel; r < panel + rows; ++r) {
        const Cover c = cover(p.mask, block.head[r], block.query[r], first, count);
        if (c.begin == c.end) continue;
        begin = std::min(begin, c.begin);
        end = std::max(end, c.end);
      }
      pairs += int64_t(rows) * std::max(end - begin, 0);
    }
  }
  return pairs;
}

}  // namespace regard
