// SPDX-License-Identifier: Apache-2.0
// Which keys of a tile a row keeps: the one place that tells the kinds of mask apart.
#pragma once

#include <vector>

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

// Keys of a tile at most.
constexpr int kMaxTile = 96;

// The keys of a tile that a row keeps: bit j % 32 of word j / 32.
constexpr int kTileWords = kMaxTile / 32;
struct Kept {
  uint32_t word[kTileWords];
};
Cover cover_of(const Kept&);

// What at least one row keeps of a tile, and what all of them do. Word n of row r goes to kept[n * word + r].
struct Common {
  Kept any, every;
};
Common keep(const Mask&, const int64_t* head, const int64_t* query, int rows, int64_t first, int count, uint32_t* kept,
            ptrdiff_t word);

// Span `s` of a row of a span mask, empty ones included.
Range span_of(const Mask&, int64_t head, int64_t query, int s);

bool keeps(const Mask&, int64_t head, int64_t query, int64_t key);

// Of some keys, those outside of `hull` no row keeps, and those of `common` every row does. Either is what is found
// without a search of all keys: of a mask of bytes nothing is, and of a row of several spans the longest.
struct Reach {
  Range hull, common;
};
Reach reach(const Problem&, const Block&, int first, int rows, Range keys);

// The hull of all rows of a block.
Range hull(const Problem&, const Block&, Range keys);

// What the rows of a block reach of all keys, in ascending order: of spans, for their first, their second and so on the
// keys from the first to the last that a row keeps; of other masks, the hull.
std::vector<Range> reached(const Problem&, const Block&);

// Sorts ranges, and makes one of those that meet.
void join(std::vector<Range>&);

// Pairs that the rows of a block are like to compute: of spans, what they reach; of other masks, which are looked at
// tile by tile, all.
int64_t likely_pairs(const Problem&, const Block&);

// Pairs that a band keeps, or as many as are enough; of masks that are no spans, which are not looked at, all.
double pairs_up_to(const Problem&, double enough);

// What became of the tiles of a band: a tile is kTileRows rows by `tile` keys.
struct TileCount {
  int64_t visited, partial, skipped;
};
// Adds those of one block.
void count_tiles(const Problem&, const Block&, int tile, TileCount& total);

// Pairs of query and key that a block computes in the tiles of these keys: of each panel of its rows, the rows times,
// per tile, the keys from the first to the last that one of them keeps. `keys` begins at a tile's first.
int64_t count_pairs(const Problem&, const Block&, Range keys, int tile, int panel_rows);

}  // namespace regard
