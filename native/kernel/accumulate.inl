// SPDX-License-Identifier: Apache-2.0
// out = shrink * out + weights . v: the tile's own product starts at zero and is added once, keys ascending.
template <class N, int C>
inline void accumulate(const typename N::T* weights, const Rows<typename N::T>& value, int begin, int end, int dv,
                       const typename N::T* shrink, typename N::T* out) {
  constexpr int kPanel = Scratch<N>::kPanel;
  product<N, C>(value.at(begin), 1, value.row, weights + ptrdiff_t(begin) * kPanel, dv, end - begin,
                [&](int r, int c, typename N::V block) {
                  typename N::T* const at = out + ptrdiff_t(r) * kPanel + c * N::kLanes;
                  N::store(at, N::fma(N::load(at), N::load(shrink + c * N::kLanes), block));
                });
}

// Containment: in a tile with dropped pairs a NaN or Inf of v must reach the rows that keep its key and no other,
// and 0 * NaN is NaN. So the product reads a copy of v with such elements zeroed, and they are added afterwards,
// row by row. The finite elements keep their order of additions: a row's bits do not depend on its neighbours.
template <class N>
inline bool all_finite(const Rows<typename N::T>& value, int count, int dv) {
  typedef typename N::T T;
  typename N::V bad = N::set(0);  // x - x is 0, or NaN for NaN and Inf
  T rest = 0;
  for (int j = 0; j < count; ++j) {
    const T* row = value.at(j);
    int c = 0;
    for (; c + N::kLanes <= dv; c += N::kLanes) bad = N::add(bad, N::sub(N::load(row + c), N::load(row + c)));
    for (; c < dv; ++c) rest += row[c] - row[c];
  }
  T lanes[N::kLanes];
  N::store(lanes, bad);
  for (T lane : lanes) rest += lane;
  return rest == 0;
}

template <class T>
Rows<T> zero_nonfinite(const Rows<T>& value, int count, int dv, T* copy) {
  for (int j = 0; j < count; ++j) {
    for (int c = 0; c < dv; ++c) {
      const T x = value.at(j)[c];
      copy[j * ptrdiff_t(dv) + c] = x - x == 0 ? x : 0;
    }
  }
  return {copy, dv};
}

template <class N, class Stored>
void add_nonfinite(const Panel& panel, int64_t first, int begin, int end, const typename N::T* weights,
                   typename N::T* out) {
  typedef typename N::T T;
  constexpr int kPanel = Scratch<N>::kPanel;
  const Input& value = panel.p.value;
  for (int j = begin; j < end; ++j) {
    const char* from = value.data + value.head[panel.head(0)] + (first + j) * value.row;
    for (int c = 0; c < panel.p.dv; ++c) {
      const T x = widen(load_any<Stored>(from + c * value.col));
      if (x - x == 0) continue;
      for (int r = 0; r < panel.count; ++r) {
        if (!sees<T>(panel, r, first + j)) continue;
        out[ptrdiff_t(c) * kPanel + r] += weights[ptrdiff_t(j) * kPanel + r] * x;
      }
    }
  }
}
