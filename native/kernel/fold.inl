// SPDX-License-Identifier: Apache-2.0
// Online softmax (Milakov & Gimelshein 2018): scores become weights against the running maximum.

// -inf stands for a row that has kept nothing yet, and -inf - -inf is NaN: such a row is measured from 0, where its
// weights are 0.
template <class N>
inline typename N::V base_of(typename N::V peak) {
  return N::select_less(N::set(-__builtin_inff()), peak, peak, N::set(0));
}

// Keys [j, j + K) of a panel: weights in place of scores, added to the totals in the order of the keys.
template <class N, int C, int K>
inline void weigh(typename N::T* scores, const typename N::V (&base)[C], typename N::V (&total)[C]) {
  typename N::V x[K * C];
#pragma GCC unroll 16
  for (int i = 0; i < K * C; ++i) {
    x[i] = N::sub(N::load(scores + (i / C) * Scratch<N>::kPanel + (i % C) * N::kLanes), base[i % C]);
  }
  exp<N>(x);
#pragma GCC unroll 16
  for (int i = 0; i < K * C; ++i) {
    N::store(scores + (i / C) * Scratch<N>::kPanel + (i % C) * N::kLanes, x[i]);
    total[i % C] = N::add(total[i % C], x[i]);
  }
}

// Keys [begin, end) of one panel. max and sum are the state of its lanes; shrink receives the factor by which the
// output so far must shrink. The tile's own sum starts at zero and is added once: it halves the error.
template <class N, int C>
inline void fold(int begin, int end, typename N::T* scores, typename N::T* max, typename N::T* sum,
                 typename N::T* shrink) {
  typedef typename N::V V;
  constexpr int kPanel = Scratch<N>::kPanel, kStep = C < 4 ? 4 / C : 1;  // four vectors in step
  V peak[C], base[C], total[C];
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) peak[c] = N::load(max + c * N::kLanes);
  for (int j = begin; j < end; ++j) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) peak[c] = N::max(N::load(scores + ptrdiff_t(j) * kPanel + c * N::kLanes), peak[c]);
  }
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) {
    base[c] = base_of<N>(peak[c]);
    total[c] = N::set(0);
  }
  int j = begin;
  for (; j + kStep <= end; j += kStep) weigh<N, C, kStep>(scores + ptrdiff_t(j) * kPanel, base, total);
  for (; j < end; ++j) weigh<N, C, 1>(scores + ptrdiff_t(j) * kPanel, base, total);
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) {
    const V factor = exp<N>(N::sub(N::load(max + c * N::kLanes), base[c]));
    N::store(shrink + c * N::kLanes, factor);
    N::store(sum + c * N::kLanes, N::fma(N::load(sum + c * N::kLanes), factor, total[c]));
    N::store(max + c * N::kLanes, peak[c]);
  }
}
