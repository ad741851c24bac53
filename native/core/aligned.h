// SPDX-License-Identifier: Apache-2.0
// Memory from a whole cache line on.
#pragma once

#include <stddef.h>

#include <memory>
#include <new>

namespace regard {

constexpr std::align_val_t kLine{64};

struct FreeAligned {
  void operator()(char* p) const { ::operator delete(p, kLine); }
};
using Aligned = std::unique_ptr<char, FreeAligned>;

// Null where the system has none.
inline Aligned aligned(size_t bytes) { return Aligned(static_cast<char*>(::operator new(bytes, kLine, std::nothrow))); }

}  // namespace regard
