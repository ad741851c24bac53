// SPDX-License-Identifier: Apache-2.0
// The target amx as a machine without AMX and AVX-512 can run it: the same loops over the model of its tiles.
#define REGARD_TARGET amx_model
#define REGARD_VEC "vec_avx2.inl"
#define REGARD_TILES "amx_model.inl"
#include <immintrin.h>
#include "kernel.inl"
#include "check.h"
#include "tiles_test.inl"
