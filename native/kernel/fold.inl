// SPDX-License-Identifier: Apache-2.0
// Online softmax (Milakov & Gimelshein 2018): scores become weights against the running maximum.

// Keys [begin, end) of one panel. max and sum are the state of its lanes; shrink receives the factor by which the
// output so far must shrink. The tile's own sum starts at zero and is added once: it halves the error.
template <class N, int C>
inline void fold(int begin, int end, typename N::T* scores, typename N::T* max, typename N::T* sum,
                 typename N::T* shrink) {
  typedef typename N::V V;
  const V lowest = N::set(-__builtin_inff());
  for (int c = 0; c < C; ++c) {
    typename N::T* const s = scores + c * N::kLanes;
    const V old = N::load(max + c * N::kLanes);
    V peak = old;
    for (int j = begin; j < end; ++j) peak = N::max(N::load(s + ptrdiff_t(j) * Scratch<N>::kPanel), peak);
    // A lane that has kept nothing yet has peak -inf, and -inf - -inf is NaN: measure it from 0, its weights are 0.
    const V base = N::select_less(lowest, peak, peak, N::set(0));
    V total = N::set(0);
    for (int j = begin; j < end; ++j) {
      typename N::T* const at = s + ptrdiff_t(j) * Scratch<N>::kPanel;
      const V weight = exp<N>(N::sub(N::load(at), base));
      N::store(at, weight);
      total = N::add(total, weight);
    }
    const V factor = exp<N>(N::sub(old, base));
    N::store(shrink + c * N::kLanes, factor);
    N::store(sum + c * N::kLanes, N::fma(N::load(sum + c * N::kLanes), factor, total));
    N::store(max + c * N::kLanes, peak);
  }
}
