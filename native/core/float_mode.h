// SPDX-License-Identifier: Apache-2.0
// The calling thread's floating-point mode: rounding, subnormals, traps. kDefaultMode is IEEE 754's; the bits of kFlush
// make subnormals zero.
#pragma once

#include <stdint.h>
#ifdef REGARD_X86
#include <xmmintrin.h>
#endif

namespace regard {

#if defined(REGARD_X86)
typedef uint32_t FloatMode;
constexpr FloatMode kDefaultMode = 0x1f80, kFlush = 0x8040;

inline FloatMode float_mode() { return _mm_getcsr(); }
inline void set_float_mode(FloatMode mode) { _mm_setcsr(mode); }

#elif defined(REGARD_ARM)
typedef uint64_t FloatMode;
constexpr FloatMode kDefaultMode = 0, kFlush = 1 << 24;

inline FloatMode float_mode() {
  FloatMode mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
inline void set_float_mode(FloatMode mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }

#else  // left as it is
typedef uint32_t FloatMode;
constexpr FloatMode kDefaultMode = 0, kFlush = 0;

inline FloatMode float_mode() { return kDefaultMode; }
inline void set_float_mode(FloatMode) {}
#endif

}  // namespace regard
