// SPDX-License-Identifier: Apache-2.0
#define REGARD_TARGET avx512_bf16
#define REGARD_VEC "vec_avx512.inl"
#define REGARD_PAIRS "pairs.inl"
#include <immintrin.h>
#include "kernel.inl"
