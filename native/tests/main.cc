// SPDX-License-Identifier: Apache-2.0
// Native tests, for every target that this machine can run. Exit code 0 means that all checks held.
#include <algorithm>
#include <vector>

#include "check.h"
#include "cpu.h"

namespace regard {
namespace scalar {
void test_pieces();
}
#ifdef REGARD_ARM
namespace neon {
void test_pieces();
}
#endif
#ifdef REGARD_X86
namespace avx2 {
void test_pieces();
}
namespace avx512 {
void test_pieces();
}
namespace pairs_model {
void test_pairs();
}
namespace avx512_bf16 {
void test_pairs();
void test_model();
}  // namespace avx512_bf16
#endif
#ifdef REGARD_AMX
namespace amx_model {
void test_tiles();
}
namespace amx {
void test_tiles();
void test_model();
}  // namespace amx
#endif
void test_chunks();
void test_cuts();
void test_tail();
void test_ranges(const Table&, const Table&);
void test_whole(const std::vector<const Table*>&);
}  // namespace regard

int main() {
  using namespace regard;
  setvbuf(stdout, nullptr, _IONBF, 0);  // where a run hangs or dies, its last line tells
  std::vector<const Table*> tables;
  for (const Target& t : targets()) {
    const char* const refusal = t.usable ? enable(t) : t.why;
    printf("%s: %s\n", t.table->name, refusal ? refusal : "tested");
    if (!refusal) tables.push_back(t.table);
  }
  [[maybe_unused]] const auto runs = [&](const Table& table) {
    return std::find(tables.begin(), tables.end(), &table) != tables.end();
  };
  test_cuts();
  test_chunks();
  test_tail();
  scalar::test_pieces();
#ifdef REGARD_ARM
  neon::test_pieces();
#endif
#ifdef REGARD_X86
  if (runs(avx2::kTable)) avx2::test_pieces();
  if (runs(avx512::kTable)) avx512::test_pieces();
  if (runs(avx512_bf16::kTable)) {
    avx512_bf16::test_model();
    avx512_bf16::test_pairs();
    test_ranges(avx512_bf16::kTable, avx512::kTable);
  } else {
    printf("avx512_bf16: SKIPPED: the model of its instruction was not compared with the instruction\n");
  }
  if (runs(avx2::kTable)) {
    pairs_model::test_pairs();
    test_ranges(pairs_model::kTable, avx2::kTable);
    tables.push_back(&pairs_model::kTable);
  }
#endif
#ifdef REGARD_AMX
  if (runs(amx::kTable)) {
    amx::test_model();
    amx::test_tiles();
    test_ranges(amx::kTable, avx512::kTable);
  } else {
    printf("amx: SKIPPED: the model of its instruction was not compared with the instruction\n");
  }
  if (runs(avx2::kTable)) {
    amx_model::test_tiles();
    test_ranges(amx_model::kTable, avx2::kTable);
    tables.push_back(&amx_model::kTable);
  }
#endif
  test_whole(tables);
  printf("%d passed, %d failed\n", g_checks - g_failures, g_failures);
  return g_failures != 0;
}
