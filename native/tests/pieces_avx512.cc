// SPDX-License-Identifier: Apache-2.0
#define REGARD_TARGET avx512
#define REGARD_VEC "vec_avx512.inl"
#include <immintrin.h>
#define kTable kTableUnderTest
#include "kernel.inl"
#include "check.h"
#include "pieces.inl"
