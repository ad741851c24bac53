// SPDX-License-Identifier: Apache-2.0
#define REGARD_TARGET scalar
#define REGARD_VEC "vec_scalar.inl"
#define kTable kTableUnderTest
#include "kernel.inl"
#include "check.h"
#include "pieces.inl"
