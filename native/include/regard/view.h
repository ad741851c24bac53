// SPDX-License-Identifier: Apache-2.0
// What a kernel may know of a problem: plain views, no ownership, no Python.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace regard {

// Query rows of one task, at most: an engine says how many it likes best. A panel divides them or the last one is
// shorter.
constexpr int kBlockRows = 192;

// Query rows of a tile, as tiles are counted.
constexpr int kTileRows = 96;

// A strided array (head, row, column). `head[h]` is the offset of head h; all strides are in bytes and may have
// any sign: leading axes that were broadcast repeat their offset, grouped query heads share their kv head's.
template <class Byte>
struct Strided {
  Byte* data;
  const int64_t* head;
  ptrdiff_t row;
  ptrdiff_t col;
};
using Input = Strided<const char>;
using Output = Strided<char>;

// One lowered band of a mask. It is data: which expression it came from is Python's business.
struct Mask {
  enum Kind : int {
    kFull,   // every key is kept; nothing else is read
    kSpans,  // per row `width` pairs of int64: sorted, disjoint, half-open key ranges
    kBits,   // per row one bit per key, little-endian, at `row` bytes per row
    kBytes,  // per row one byte per key, `col` bytes apart: the user's own bool array
  };
  Kind kind;
  Input rows;  // the row of query i is at (i - first_row) * rows.row
  int width;
  int64_t first_row;
};

enum class DType : int { kFloat32, kFloat64, kFloat16, kBFloat16 };
constexpr int kDTypes = 4;

// A float array that is added to the scores; -inf drops the pair.
struct Bias {
  Input rows;  // the row of query i is at i * rows.row
  DType dtype;
};

// Row statistics of the softmax, contiguous (head, query), in the dtype of the scores; each pointer may be null.
// max and sum make the weights exp(s - max) / sum, a sink included; lse is over the keys alone.
struct Stats {
  void* max;
  void* sum;
  void* lse;
};

struct Problem {
  Input query, key, value;
  Output out;
  Output state;  // the output before the sink, in the dtype of the scores; data may be null
  Stats stats;
  Mask mask;
  const Bias* biases;  // added one after the other
  int bias_count;
  const double* sinks;  // a logit per head, or null
  int64_t heads, queries, keys;
  int64_t row_begin, row_end;  // the query rows of this band
  int d, dv;
  double scale;
  double softcap;  // 0: none
  bool any_order;  // rows need not have the bits that they have in other calls
  // Asked before each tile: false, and from then on for good, ends the task, whose rows are then left unwritten.
  bool (*go_on)(void* watch);
  void* watch;
};

// The rows of one task: all of them read the same kv head.
struct Block {
  int rows;
  bool alone;  // one row, and no other of the band reads its kv head
  int64_t head[kBlockRows];
  int64_t query[kBlockRows];
};

}  // namespace regard
