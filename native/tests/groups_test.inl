// SPDX-License-Identifier: Apache-2.0
// Values in groups of columns; included once per target, after kernel.inl.

namespace regard {
namespace REGARD_TARGET {
namespace {

// Values copied group by group: the same elements, zeros up to whole vectors, nothing written beside them, and the same
// sums as of rows.
template <class N, class Stored>
void test_groups() {
  typedef typename N::T T;
  constexpr int kPanel = Scratch<N>::kPanel, kGroup = N::kWide * N::kLanes, kKeys = 13, kMost = 70;
  constexpr int kRows = kPanel < 5 ? kPanel : 5;
  const int widths[] = {1, 7, 8, 16, 20, 33, 64}, steps[] = {1, 2};
  Noise noise;
  static Stored from[kKeys * kMost * 2];
  static T weight[kKeys * kPanel], copy[kKeys * (kMost + kGroup) + 1], rows[kKeys * (kMost + kGroup)];
  static T got[kRows * (kMost + kGroup)], want[kRows * (kMost + kGroup)];
  const T shrink[] = {1, T(0.5), 0, T(0.25), 2};
  for (Stored& x : from) narrow(T(noise()), x);
  for (T& x : weight) x = noise();
  for (int width : widths) {
    for (int step : steps) {
      const int64_t head = 0;
      const char* const first = reinterpret_cast<const char*>(from);
      const Input in{first, &head, ptrdiff_t(kMost * 2 * sizeof(Stored)), ptrdiff_t(step * sizeof(Stored))};
      const int padding = padded<N>(width), room = up_to(width, kGroup) * kKeys;
      copy[room] = 12345;
      const Values<N, T> groups = copy_groups<N, Stored>(in, first, kKeys, width, copy);
      const Values<N, T> lying{copy_rows<N, Stored>(in, first, kKeys, width, padding, rows)};
      CHECK(copy[room] == 12345, "width %d: there is more than %d", width, room);
      for (int j = 0; j < kKeys; ++j) {
        for (int c = 0; c < padding; ++c) {
          const T x = c < width ? T(widen(from[j * kMost * 2 + c * step])) : T(0);
          CHECK(*groups.at(j, c) == x && *lying.at(j, c) == x, "width %d step %d: (%d, %d)", width, step, j, c);
        }
      }
      for (int n = 0; n < kRows * padding; ++n) got[n] = want[n] = T(0.1) * T(n);
      accumulate<N>(weight, groups, 2, kKeys, kRows, padding, shrink, got, Alone{});
      accumulate<N>(weight, lying, 2, kKeys, kRows, padding, shrink, want, Alone{});
      for (int n = 0; n < kRows * padding; ++n) CHECK(got[n] == want[n], "width %d: %d of the sums", width, n);
    }
  }
}

}  // namespace
}  // namespace REGARD_TARGET
}  // namespace regard
