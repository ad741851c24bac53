// SPDX-License-Identifier: Apache-2.0
#define REGARD_TARGET amx
#define REGARD_VEC "vec_avx512.inl"
#define REGARD_TILES "amx.inl"
#include <immintrin.h>
#define kTable kTableUnderTest
#include "kernel.inl"
#include "check.h"
#include "tiles_test.inl"

namespace regard {
namespace amx {
namespace {
namespace model {
#include "amx_model.inl"
}

// Any bits, and numbers that lie near each other.
void test_same_as_the_model(Noise& noise, bool any) {
  Operands x(noise);
  if (any) {
    for (BFloat16& y : x.a) y.bits = static_cast<uint16_t>(noise.bits() >> 16);
    for (BFloat16& y : x.b) y.bits = static_cast<uint16_t>(noise.bits() >> 16);
  }
  float got[kSide * kSide], want[kSide * kSide];
  multiply<Tiles>(x, got);
  multiply<model::Tiles>(x, want);
  for (int i = 0; i < kSide * kSide; ++i) {
    const bool same = bit_cast<uint32_t>(got[i]) == bit_cast<uint32_t>(want[i]);
    CHECK(same || (got[i] != got[i] && want[i] != want[i]), "the machine says %.9g, its model %.9g", got[i], want[i]);
  }
}

}  // namespace

void test_model() {
  Noise noise;
  for (int round = 0; round < 20000; ++round) test_same_as_the_model(noise, round % 2 == 1);
  printf("amx: the machine and the model of its instruction compared on 20000 tiles\n");
}

}  // namespace amx
}  // namespace regard
