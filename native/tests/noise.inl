// SPDX-License-Identifier: Apache-2.0
// Numbers to test with: internal to the target whose tests include it, after kernel.inl.

namespace regard {
namespace REGARD_TARGET {
namespace {

// Deterministic and without <random>: a target object shares no inline code.
struct Noise {
  uint32_t state = 12345;
  uint32_t bits() { return state = state * 1664525u + 1013904223u; }
  float operator()() { return static_cast<float>(static_cast<int32_t>(bits())) * 0x1p-30f; }  // in [-2, 2)
  float spread() {                                                                            // over 2^40
    const float x = (*this)();
    return ::ldexpf(x, static_cast<int>(bits() >> 8) % 21 - static_cast<int>(bits() >> 8) % 21);
  }
};

}  // namespace
}  // namespace REGARD_TARGET
}  // namespace regard
