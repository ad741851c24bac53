// SPDX-License-Identifier: Apache-2.0
// What each target provides. A target object exports its Table and nothing else.
#pragma once

#include "view.h"

namespace regard {

// One kernel for one dtype. All functions are single-threaded and cannot fail.
struct Engine {
  // Query rows that one sweep of the registers carries: masks are looked at for so many rows of a block at a time.
  int panel_rows;
  // Query rows of a task where there are enough of them for all threads. No bits depend on it.
  int block_rows;
  // Keys of one tile. It depends on the target, the dtype and the head sizes only, never on the call, so that
  // every row folds the same tiles whatever stands around it.
  int (*tile_keys)(int d, int dv);
  // Keys of one chunk, some whole tiles, under the same rule: chunks are folded apart and merged in their order.
  int64_t (*chunk_keys)(int d, int dv);
  // Bytes of scratch that one thread needs, 64-byte aligned.
  size_t (*scratch_bytes)(int d, int dv);
  // Bytes that the state of so many rows takes, 64-byte aligned.
  size_t (*state_bytes)(int rows, int dv);
  // out and stats of the block's rows.
  void (*attend)(const Problem&, const Block&, char* scratch);
  // The same in pieces, with the same bits: the state of the numbered chunk; into the state of all chunks before it,
  // from the first that a row reaches on, that of the next; then out and stats from that of all of them.
  void (*attend_chunk)(const Problem&, const Block&, int64_t chunk, char* state, char* scratch);
  void (*merge_chunk)(const Problem&, const Block&, char* into, char* state, char* scratch);
  void (*finish_chunks)(const Problem&, const Block&, char* state);
  // Attention weights of the block's rows for keys [begin, end), from stats.max and stats.sum, into out.
  void (*weights)(const Problem&, const Block&, int64_t begin, int64_t end, char* scratch);
};

struct Table {
  const char* name;
  Engine engines[kDTypes];  // by DType of query, key, value and out
};

namespace scalar {
extern const Table kTable;
}
namespace neon {
extern const Table kTable;
}
namespace avx2 {
extern const Table kTable;
}
namespace avx512 {
extern const Table kTable;
}
namespace avx512_bf16 {
extern const Table kTable;
}
namespace amx {
extern const Table kTable;
}
// Of the native tests.
namespace pairs_model {
extern const Table kTable;
}
namespace amx_model {
extern const Table kTable;
}

}  // namespace regard
