// SPDX-License-Identifier: Apache-2.0
// The target avx512_bf16 as a machine without AVX-512 can run it: the same loops over the model of its instruction.
#define REGARD_TARGET pairs_model
#define REGARD_VEC "vec_avx2.inl"
#define REGARD_PAIRS "pairs_model.inl"
#include <immintrin.h>
#include "kernel.inl"
#include "check.h"
#include "pairs_test.inl"
