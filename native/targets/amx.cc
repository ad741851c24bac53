// SPDX-License-Identifier: Apache-2.0
#define REGARD_TARGET amx
#define REGARD_VEC "vec_avx512.inl"
#define REGARD_TILES "amx.inl"
#include <immintrin.h>
#include "kernel.inl"
