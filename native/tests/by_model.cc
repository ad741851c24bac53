// SPDX-License-Identifier: Apache-2.0
// One head through a target as a machine with AVX2 can run it, for tests/by_model.py, which defines what kernel.inl
// asks for.
#include <immintrin.h>
#include "kernel.inl"
#include "attend.h"

// Contiguous arrays; a byte of `keep` per pair. Not 0 if memory is short.
extern "C" __attribute__((visibility("default"))) int attend_by_model(int dtype, int threads, int64_t queries,
                                                                      int64_t keys, int d, int dv, double scale,
                                                                      const char* q, const char* k, const char* v,
                                                                      const char* keep, char* out, float* lse,
                                                                      float* state) {
  using namespace regard;
  const int64_t head = 0;
  const ptrdiff_t size = dtype == int(DType::kFloat32) ? 4 : 2;
  Problem p{};
  p.query = {q, &head, d * size, size};
  p.key = {k, &head, d * size, size};
  p.value = {v, &head, dv * size, size};
  p.out = {out, &head, dv * size, size};
  p.stats.lse = lse;
  p.state = {reinterpret_cast<char*>(state), &head, dv * ptrdiff_t(sizeof(float)), sizeof(float)};
  p.mask = {Mask::kBytes, {keep, &head, ptrdiff_t(keys), 1}, 0, 0};
  p.heads = 1;
  p.queries = p.row_end = queries;
  p.keys = keys;
  p.d = d;
  p.dv = dv;
  p.scale = scale;
  return attend(REGARD_TARGET::kTable.engines[dtype], p, threads, Poll()) != Outcome::kDone;
}
