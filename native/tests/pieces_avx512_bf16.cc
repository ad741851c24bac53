// SPDX-License-Identifier: Apache-2.0
#define REGARD_TARGET avx512_bf16
#define REGARD_VEC "vec_avx512.inl"
#define REGARD_PAIRS "pairs.inl"
#include <immintrin.h>
#define kTable kTableUnderTest
#include "kernel.inl"
#include "check.h"
#include "pairs_test.inl"

namespace regard {
namespace avx512_bf16 {
namespace {
namespace model {
#include "pairs_model.inl"
}

// Any bits, and numbers that lie near each other.
void test_same_as_the_model(Noise& noise, bool any) {
  const Operands x(noise, any);
  float got[F32::kLanes], want[F32::kLanes];
  x.multiply<Paired>(got);
  x.multiply<model::Paired>(want);
  for (int l = 0; l < F32::kLanes; ++l) {
    const bool same = bit_cast<uint32_t>(got[l]) == bit_cast<uint32_t>(want[l]);
    CHECK(same || (got[l] != got[l] && want[l] != want[l]), "the machine says %.9g, its model %.9g", got[l], want[l]);
  }
}

}  // namespace

void test_model() {
  Noise noise;
  for (int round = 0; round < 200000; ++round) test_same_as_the_model(noise, round % 2 == 1);
  printf("avx512_bf16: the machine and the model of its instruction compared on 200000 vectors\n");
}

}  // namespace avx512_bf16
}  // namespace regard
