// SPDX-License-Identifier: Apache-2.0
// Which keys of a tile a row keeps: the one place that tells the kinds of mask apart.
#pragma once

#include "regard/view.h"

namespace regard {

struct Range {
  int64_t begin, end;
  bool empty() const { return begin >= end; }
};

// The keys of [first, first + count) that a row keeps, relative to `first`: all lie in [begin, end), and `solid`
// says that nothing in between is dropped. begin == end: it keeps none.
struct Cover {
  int begin, end;
  bool solid;
};

Cover cover(const Mask&, int64_t head, int64_t query, int64_t first, int count);

// Keys of a tile at most: the scratch of a row's flags.
constexpr int kMaxTile = 256;

// Whether a row's dropped keys come as runs (few and long) or as flags (any pattern).
bool has_spans(const Mask&);

// For masks with spans: half-open runs of dropped keys within [begin, end) of the tile at `first`, relative to
// `first`. Writes at most (end - begin + 1) / 2 pairs to `runs` and returns how many.
int dropped(const Mask&, int64_t head, int64_t query, int64_t first, int begin, int end, int (*runs)[2]);

// For the others: one byte per key of [begin, end), 1 if it is kept.
void flags(const Mask&, int64_t head, int64_t query, int64_t first, int begin, int end, unsigned char* kept);

// Span `s` of a row of a span mask, empty ones included.
Range span_of(const Mask&, int64_t head, int64_t query, int s);

bool keeps(const Mask&, int64_t head, int64_t query, int64_t key);

// A range of keys outside of which no row of the block keeps anything. Bit and byte masks are not searched.
Range hull(const Problem&, const Block&);

// What became of the tiles of a band: a tile is one block of rows by `tile` keys.
struct TileCount {
  int64_t visited, partial, skipped;
};
TileCount count_tiles(const Problem&, const Block&, int tile);

}  // namespace regard
