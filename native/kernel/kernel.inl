// SPDX-License-Identifier: Apache-2.0
// Included once per target, which defines REGARD_TARGET and REGARD_VEC, and REGARD_TILES if it has tiles or
// REGARD_PAIRS if it has products of pairs. Everything here but the table has internal linkage, and nothing here may
// come from a header that other targets share inline: the linker would keep one copy of it, with one target's
// instructions, for all.
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cover.h"
#include "regard/table.h"

#define REGARD_STRING_(x) #x
#define REGARD_STRING(x) REGARD_STRING_(x)

namespace regard {
namespace REGARD_TARGET {
namespace {

#include "stored.inl"
#include REGARD_VEC
#include "math.inl"
#include "scratch.inl"
#include "pack.inl"
#include "product.inl"
#include "scores.inl"
#include "mask.inl"
#include "shape.inl"
#include "fold.inl"
#include "accumulate.inl"
#include "apart.inl"
#ifdef REGARD_TILES
#include REGARD_TILES
#include "tiles.inl"
#include "tiled.inl"
#endif
#ifdef REGARD_PAIRS
#include REGARD_PAIRS
#include "paired.inl"
#endif
#include "merge.inl"
#include "finish.inl"
#include "attend.inl"
#include "weights.inl"

// What float32, float16 and bfloat16 are computed with; of tiles, how many pieces an element and a weight have.
#if defined(REGARD_TILES)
typedef Pieced<F32, 3, 3> ForFloat;
typedef Pieced<F32, 2, 3> ForHalf;
typedef Pieced<F32, 1, 1> ForBFloat16;
#elif defined(REGARD_PAIRS)
typedef F32 ForFloat, ForHalf;
typedef Paired ForBFloat16;
#else
typedef F32 ForFloat, ForHalf, ForBFloat16;
#endif

template <class N, class Stored>
constexpr Engine engine() {
  static_assert(N::kBlock <= kBlockRows, "a block has room for its rows");
  return {Scratch<N>::kPanel, N::kBlock,
          tile_keys,          chunk_keys,
          scratch_bytes<N>,   state_bytes<N>,
          attend<N, Stored>,  attend_chunk<N, Stored>,
          merge_chunk<N>,     finish_chunks<N, Stored>,
          weights<N, Stored>};
}

}  // namespace

const Table kTable = {
    REGARD_STRING(REGARD_TARGET),
    {engine<ForFloat, float>(), engine<F64, double>(), engine<ForHalf, Half>(), engine<ForBFloat16, BFloat16>()}};

}  // namespace REGARD_TARGET
}  // namespace regard
