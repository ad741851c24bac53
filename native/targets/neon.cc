// SPDX-License-Identifier: Apache-2.0
#define REGARD_TARGET neon
#define REGARD_VEC "vec_neon.inl"
#include <arm_neon.h>
#include "kernel.inl"
