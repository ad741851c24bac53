// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdio.h>

namespace regard {
inline int g_checks = 0, g_failures = 0;
}

// Counts, and prints the first failures with their place and values.
#define CHECK(holds, ...)                                    \
  do {                                                       \
    ++regard::g_checks;                                      \
    if (!(holds) && ++regard::g_failures <= 20) {            \
      printf("%s:%d: not %s: ", __FILE__, __LINE__, #holds); \
      printf(__VA_ARGS__);                                   \
      printf("\n");                                          \
    }                                                        \
  } while (0)
