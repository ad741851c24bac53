// SPDX-License-Identifier: Apache-2.0
#include "cpu.h"

#ifdef REGARD_X86
#include <cpuid.h>
#endif
#ifdef REGARD_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace regard {
namespace {

#ifdef REGARD_X86

struct Features {
  bool fma_f16c = false, avx2 = false, avx512 = false;
  bool avx512_bf16 = false, amd = false, amx = false;
  bool os_ymm = false, os_zmm = false, os_tiles = false;

  Features() {
    unsigned a, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d)) return;
    amd = b == signature_AMD_ebx && c == signature_AMD_ecx && d == signature_AMD_edx;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return;
    fma_f16c = (c & bit_FMA) && (c & bit_F16C);
    // XGETBV tells which registers the OS saves at a switch: 6 = xmm, ymm; 0xe0 = the AVX-512 state;
    // 0x60000 = the tiles of AMX and their configuration.
    if (c & bit_OSXSAVE) {
      unsigned low, high;
      __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
      os_ymm = (low & 0x6) == 0x6;
      os_zmm = os_ymm && (low & 0xe0) == 0xe0;
      os_tiles = (low & 0x60000) == 0x60000;
    }
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    avx2 = b & bit_AVX2;
    const unsigned needed = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    avx512 = (b & needed) == needed;
    amx = (d >> 24 & 1) && (d >> 22 & 1);  // AMX-TILE, AMX-BF16
    avx512_bf16 = __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
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

// On a Zen 4 it makes twice the products of FMA (experiments/0014); on a Xeon that was measured, 0.4 of them.
Target avx512_bf16_target(const Features& f) {
  const Target vectors = avx512_target(f);
  if (!f.avx512_bf16) return {&avx512_bf16::kTable, false, "this CPU has no AVX-512 BF16"};
  if (!vectors.usable) return {&avx512_bf16::kTable, false, vectors.why};
  if (!f.amd)
    return {&avx512_bf16::kTable, false, "AVX-512 BF16 is faster than FMA on AMD's CPUs only, as far as was measured"};
  return {&avx512_bf16::kTable, true, "CPU and operating system allow AVX-512 (F, DQ, BW, VL, BF16)"};
}

#ifdef REGARD_AMX

Target amx_target(const Features& f) {
  const Target vectors = avx512_target(f);
  if (!f.amx) return {&amx::kTable, false, "this CPU has no AMX (TILE, BF16)"};
  if (!vectors.usable) return {&amx::kTable, false, vectors.why};
  if (!f.os_tiles) return {&amx::kTable, false, "the operating system does not save AMX registers"};
  return {&amx::kTable, true, "CPU and operating system allow AMX (TILE, BF16) and AVX-512"};
}

// arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), for all threads of the process.
bool request_tiles() { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }

#endif
#endif

std::vector<Target> probe() {
  std::vector<Target> all{{&scalar::kTable, true, "runs everywhere"}};
#ifdef REGARD_X86
  const Features f;
  all.push_back(avx2_target(f));
  all.push_back(avx512_target(f));
  all.push_back(avx512_bf16_target(f));
#ifdef REGARD_AMX
  all.push_back(amx_target(f));
#endif
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

const char* enable([[maybe_unused]] const Target& target) {
#ifdef REGARD_AMX
  if (target.table == &amx::kTable && !request_tiles())
    return "the operating system refuses this process AMX registers";
#endif
  return nullptr;
}

}  // namespace regard
