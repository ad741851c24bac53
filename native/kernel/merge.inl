// SPDX-License-Identifier: Apache-2.0
// Two states of the same rows, over different keys, made one. Joining the state of no keys changes no bit: its
// factors are 1 and exactly 0.

template <class N>
void clear(const State<N>& s, int rows, int dv) {
  for (size_t r = 0; r < State<N>::whole(rows); ++r) {
    s.max[r] = -__builtin_inff();
    s.sum[r] = 0;
    s.seen[r] = false;
  }
  for (ptrdiff_t i = 0; i < ptrdiff_t(rows) * padded<N>(dv); ++i) s.out[i] = 0;
}

template <class N>
void merge(const State<N>& into, const State<N>& from, int rows, int dv, Scratch<N>& s) {
  typedef typename N::V V;
  for (int r = 0; r < rows; r += N::kLanes) {
    const V peak = N::max(N::load(from.max + r), N::load(into.max + r)), base = base_of<N>(peak);
    const V shrink = exp<N>(N::sub(N::load(into.max + r), base)), grow = exp<N>(N::sub(N::load(from.max + r), base));
    N::store(s.shrink + r, shrink);
    N::store(s.grow + r, grow);
    N::store(into.sum + r, N::fma(N::load(into.sum + r), shrink, N::mul(N::load(from.sum + r), grow)));
    N::store(into.max + r, peak);
  }
  const int width = padded<N>(dv);
  for (int r = 0; r < rows; ++r) {
    into.seen[r] = into.seen[r] || from.seen[r];
    const V shrink = N::set(s.shrink[r]), grow = N::set(s.grow[r]);
    for (int c = 0; c < width; c += N::kLanes) {
      typename N::T* const at = into.out + ptrdiff_t(r) * width + c;
      N::store(at, N::fma(N::load(at), shrink, N::mul(N::load(from.out + ptrdiff_t(r) * width + c), grow)));
    }
  }
}
