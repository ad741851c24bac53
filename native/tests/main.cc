// SPDX-License-Identifier: Apache-2.0
// Native tests, for every target that this machine can run. Exit code 0 means that all checks held.
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
#endif
void test_whole();
}  // namespace regard

int main() {
  using namespace regard;
  setvbuf(stdout, nullptr, _IONBF, 0);  // where a run hangs or dies, its last line tells
  for (const Target& t : targets()) printf("%s: %s\n", t.table->name, t.usable ? "tested" : t.why);
  scalar::test_pieces();
#ifdef REGARD_ARM
  neon::test_pieces();
#endif
#ifdef REGARD_X86
  if (targets()[1].usable) avx2::test_pieces();
  if (targets()[2].usable) avx512::test_pieces();
#endif
  test_whole();
  printf("%d passed, %d failed\n", g_checks - g_failures, g_failures);
  return g_failures != 0;
}
