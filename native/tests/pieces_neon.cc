// SPDX-License-Identifier: Apache-2.0
#define REGARD_TARGET neon
#define REGARD_VEC "vec_neon.inl"
#include <arm_neon.h>
#define kTable kTableUnderTest
#include "kernel.inl"
#include "check.h"
#include "pieces.inl"
