// SPDX-License-Identifier: Apache-2.0
#include "cpu.h"

#ifdef REGARD_X86
#include <cpuid.h>
#endif

namespace regard {
namespace {

#ifdef REGARD_X86

struct Features {
  bool fma_f16c = false, avx2 = false, avx512 = false;
  bool os_ymm = false, os_zmm = false;

  Features() {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return;
    fma_f16c = (c & bit_FMA) && (c & bit_F16C);
    // XGETBV tells which registers the OS saves at a switch: 6 = xmm, ymm; 0xe0 = the AVX-512 state.
    if (c & bit_OSXSAVE) {
      unsigned low, high;
      __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
      os_ymm = (low & 0x6) == 0x6;
      os_zmm = os_ymm && (low & 0xe0) == 0xe0;
    }
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    avx2 = b & bit_AVX2;
    const unsigned needed = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    avx512 = (b & needed) == needed;
  }
};

Target avx2_target(const Features& f) {
  if (!f.avx2 || !f.fma_f16c) return {&avx2::kTable, false, "this CPU has no AVX2 with FMA and F16C"};
  if (!f.os_ymm) return {&avx2::kTable, false, "the operating system does not save AVX registers"};
  return {&avx2::kTable, true, "CPU and operating system allow AVX2, FMA and F16C"};
}

Target avx512_target(const Features& f) {
  if (!f.avx512) return {&avx512::kTable, false, "this CPU has no AVX-512 (F, DQ, BW, VL)"};
  if (!f.os_zmm) return {&avx512::kTable, false, "the operating system does not save AVX-512 registers"};
  return {&avx512::kTable, true, "CPU and operating system allow AVX-512 (F, DQ, BW, VL)"};
}

#endif

std::vector<Target> probe() {
  std::vector<Target> all{{&scalar::kTable, true, "runs everywhere"}};
#ifdef REGARD_X86
  const Features f;
  all.push_back(avx2_target(f));
  all.push_back(avx512_target(f));
#endif
#ifdef REGARD_ARM
  all.push_back({&neon::kTable, true, "part of every 64-bit ARM processor"});
#endif
  return all;
}

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> all = probe();
  return all;
}

}  // namespace regard
