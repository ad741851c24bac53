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

// As many keys as there are lanes, of a few rows: the same numbers, with less of each vector idle.
template <class N, int R>
inline void weigh_few(typename N::T* scores, typename N::V base, typename N::V& total) {
  typedef typename N::V V;
  constexpr int kPanel = Scratch<N>::kPanel, kQuads = (R + 3) / 4;
  V column[kQuads][4], x[R];
  typename N::T from[R > N::kLanes ? R : N::kLanes] = {};
  N::store(from, base);
#pragma GCC unroll 2
  for (int quad = 0; quad < kQuads; ++quad) N::load_columns(scores + 4 * quad, kPanel, column[quad]);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) x[r] = N::sub(column[r / 4][r % 4], N::set(from[r]));
  exp<N>(x);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) column[r / 4][r % 4] = x[r];
#pragma GCC unroll 2
  for (int quad = 0; quad < kQuads; ++quad) N::store_columns(column[quad], scores + 4 * quad, kPanel);
  for (int j = 0; j < N::kLanes; ++j) total = N::add(total, N::load(scores + j * kPanel));
}

// Weights of keys [j, end), as far as whole steps go; returns where they end.
template <class N, int C>
inline int weigh_steps(int j, int end, int rows, typename N::T* scores, const typename N::V (&base)[C],
                       typename N::V (&total)[C]) {
  constexpr int kPanel = Scratch<N>::kPanel, kStep = C < 4 ? 4 / C : 1;  // four vectors in step
  if constexpr (C == 1 && N::kLanes > 1) {
    const auto few = [&](auto count) {
      constexpr int kRows = decltype(count)::value;
      for (; j + N::kLanes <= end; j += N::kLanes) {
        weigh_few<N, kRows>(scores + ptrdiff_t(j) * kPanel, base[0], total[0]);
      }
    };
    if (rows == 1) {
      few(Count<1>{});
    } else if (rows <= 4) {
      few(Count<4>{});
    } else if (rows <= kFew<N>) {
      few(Count<kFew<N>>{});
    }
  }
  for (; j + kStep <= end; j += kStep) weigh<N, C, kStep>(scores + ptrdiff_t(j) * kPanel, base, total);
  return j;
}

// Keys [begin, end) of one panel. max and sum are the state of its lanes; shrink receives the factor by which the
// output so far must shrink. The tile's own sum starts at zero and is added once: it halves the error.
template <class N, int C>
inline void fold(int begin, int end, int rows, typename N::T* scores, typename N::T* max, typename N::T* sum,
                 typename N::T* shrink) {
  typedef typename N::V V;
  constexpr int kPanel = Scratch<N>::kPanel;
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
  int j = weigh_steps<N, C>(begin, end, rows, scores, base, total);
  for (; j < end; ++j) weigh<N, C, 1>(scores + ptrdiff_t(j) * kPanel, base, total);
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) {
    const V factor = exp<N>(N::sub(N::load(max + c * N::kLanes), base[c]));
    N::store(shrink + c * N::kLanes, factor);
    N::store(sum + c * N::kLanes, N::fma(N::load(sum + c * N::kLanes), factor, total[c]));
    N::store(max + c * N::kLanes, peak[c]);
  }
}
