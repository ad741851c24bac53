// SPDX-License-Identifier: Apache-2.0
// What this machine gives at most, in loops without attention. Compiled once per target, with its flags: REGARD_TARGET
// is its name, REGARD_VEC its vectors, REGARD_PAIRS its products of pairs if it has any. Loaded by
// benchmarks/ceilings.py, which takes the time.
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef REGARD_X86
#include <immintrin.h>
#endif
#ifdef REGARD_ARM
#include <arm_neon.h>
#endif

#ifdef _WIN32
#define REGARD_EXPORT extern "C" __declspec(dllexport)
#else
#define REGARD_EXPORT extern "C" __attribute__((visibility("default")))
#endif
#define REGARD_JOIN_(a, b) a##_##b
#define REGARD_JOIN(a, b) REGARD_JOIN_(a, b)
#define REGARD_NAME(loop) REGARD_JOIN(loop, REGARD_TARGET)

namespace {

#include "stored.inl"
#include REGARD_VEC
#include "math.inl"
#ifdef REGARD_PAIRS
#include REGARD_PAIRS
#endif
#ifdef __AMX_BF16__
#include "amx.inl"
#endif

typedef F32::V V;

inline float total(V x) {
  float lane[F32::kLanes], sum = 0;
  F32::store(lane, x);
  for (float y : lane) sum += y;
  return sum;
}

}  // namespace

// So many operations in registers, an FMA being two. 12 chains: more than two units with a latency of 5 can hold, and
// few enough for 16 registers; 20 on ARM, which has 32 registers and up to four units with a latency of 4. Each goes to
// and fro between two numbers with full mantissas: the clock depends on how many bits change, so that zeros would be
// too fast.
REGARD_EXPORT float REGARD_NAME(fma)(int64_t flops) {
#ifdef REGARD_ARM
  constexpr int kChains = 20;
#else
  constexpr int kChains = 12;
#endif
  const V a = F32::set(-0.99999994f), b = F32::set(1.2345679f);
  V acc[kChains];
#pragma GCC unroll 20
  for (int i = 0; i < kChains; ++i) acc[i] = F32::set(3.1415927f * static_cast<float>(i + 1));
  for (int64_t n = flops / (2 * kChains * F32::kLanes); n > 0; --n) {
#pragma GCC unroll 20
    for (int i = 0; i < kChains; ++i) acc[i] = F32::fma(acc[i], a, b);
  }
  V sum = acc[0];
#pragma GCC unroll 20
  for (int i = 1; i < kChains; ++i) sum = F32::add(sum, acc[i]);
  return total(sum);
}

#ifdef REGARD_PAIRS
// So many operations in registers by pairs of bfloat16: two FMA in each lane. 16 chains, for there are 32 registers.
// What is added in one step is taken away in the next: a sum that grows would come to a stand, and no bit would change.
REGARD_EXPORT float REGARD_NAME(pairs)(int64_t flops) {
  constexpr int kChains = 16;
  const Paired::Pairs a = Paired::pair(F32::set(1.1484375f), F32::set(-1.7109375f));
  const Paired::Pairs more = Paired::pair(F32::set(1.2890625f), F32::set(-1.4140625f));
  const Paired::Pairs less = Paired::pair(F32::set(-1.2890625f), F32::set(1.4140625f));
  V acc[kChains];
#pragma GCC unroll 20
  for (int i = 0; i < kChains; ++i) acc[i] = F32::set(-1.5707964f * static_cast<float>(i + 1));
  for (int64_t n = flops / (2 * 4 * kChains * F32::kLanes); n > 0; --n) {
#pragma GCC unroll 20
    for (int i = 0; i < kChains; ++i) acc[i] = Paired::fma(a, more, acc[i]);
#pragma GCC unroll 20
    for (int i = 0; i < kChains; ++i) acc[i] = Paired::fma(a, less, acc[i]);
  }
  V sum = acc[0];
#pragma GCC unroll 20
  for (int i = 1; i < kChains; ++i) sum = F32::add(sum, acc[i]);
  return total(sum);
}
#endif

// e^x of n numbers, a multiple of 64, so many times over: the kernel's own exp and a sum, as a softmax needs them.
REGARD_EXPORT float REGARD_NAME(exp)(const float* x, int64_t n, int64_t times) {
  V sum[4] = {F32::set(0), F32::set(0), F32::set(0), F32::set(0)};
  for (; times > 0; --times) {
    for (int64_t i = 0; i < n; i += 4 * F32::kLanes) {
      V y[4];
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) y[c] = F32::load(x + i + c * F32::kLanes);
      exp<F32>(y);
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) sum[c] = F32::add(sum[c], y[c]);
    }
  }
  return total(F32::add(F32::add(sum[0], sum[1]), F32::add(sum[2], sum[3])));
}

// Every one of n numbers once, a multiple of 64. Four streams: one alone reads memory slower. Not fetched ahead: here
// that was slower by a tenth than what the processor does by itself.
REGARD_EXPORT float REGARD_NAME(read)(const float* x, int64_t n) {
  constexpr int kStreams = 4, kLine = 16;
  constexpr int kSums = F32::kLanes < kLine ? 2 : 1;
  const int64_t part = n / kStreams;
  V sum[kStreams][kSums];
  for (auto& stream : sum) {
    for (V& s : stream) s = F32::set(0);
  }
  for (int64_t i = 0; i < part; i += kLine) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const float* line = x + s * part + i;
#pragma GCC unroll 16
      for (int c = 0; c < kLine / F32::kLanes; ++c) {
        sum[s][c % kSums] = F32::add(sum[s][c % kSums], F32::load(line + c * F32::kLanes));
      }
    }
  }
  float all = 0;
  for (auto& stream : sum) {
    for (V s : stream) all += total(s);
  }
  return all;
}

#ifdef __AMX_BF16__
// So many operations in tile registers, of four tiles of bfloat16 with each other as the kernel has them. Zeros would
// be a fifth too fast. To be called where the process was given the registers.
REGARD_EXPORT float REGARD_NAME(tiles)(const BFloat16* x, int64_t flops) {
  constexpr int kRow = 32, kTile = 16 * kRow;
  float sum[16 * 16];
  const Tiles use;
  Tiles::load<4>(x, kRow);
  Tiles::load<5>(x + kTile, kRow);
  Tiles::load<6>(x + 2 * kTile, kRow);
  Tiles::load<7>(x + 3 * kTile, kRow);
  Tiles::zero<0>();
  Tiles::zero<1>();
  Tiles::zero<2>();
  Tiles::zero<3>();
  for (int64_t n = flops / (4 * 2 * 16 * kTile); n > 0; --n) {
    Tiles::dot<0, 4, 6>();
    Tiles::dot<1, 4, 7>();
    Tiles::dot<2, 5, 6>();
    Tiles::dot<3, 5, 7>();
  }
  Tiles::store<3>(sum, 16);
  return sum[0];
}
#endif
