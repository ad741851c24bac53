// SPDX-License-Identifier: Apache-2.0
// out = shrink * out + weights . v: the tile's own product starts at zero and is added once, keys ascending. Here the
// columns of v are the lanes, so that its rows are read once, in whole lines.

template <class N, int C, class Row, class Step>
inline void accumulate_columns(const typename N::T* weights, const Row* value, ptrdiff_t value_row, int keys, int rows,
                               int width, const typename N::T* shrink, typename N::T* out, Step step) {
  typedef typename N::T T;
  product<N, C>(
      Left<T>{weights, 1, Scratch<N>::kPanel}, Right<Row>{value, value_row}, rows, keys,
      [&](int r, int c, typename N::V block) {
        T* const at = out + ptrdiff_t(r) * width + c * N::kLanes;
        N::store(at, N::fma(N::load(at), N::set(shrink[r]), block));
      },
      step);
}

template <class N, int C = N::kCols, class Row, class Step>
inline void accumulate(const typename N::T* weights, const Rows<Row>& value, int begin, int end, int rows, int width,
                       const typename N::T* shrink, typename N::T* out, Step step, int column = 0) {
  for (; column + C * N::kLanes <= width; column += C * N::kLanes) {
    accumulate_columns<N, C>(weights + ptrdiff_t(begin) * Scratch<N>::kPanel, value.at(begin) + column, value.row,
                             end - begin, rows, width, shrink, out + column, step);
  }
  if constexpr (C > 1) {
    if (column < width) accumulate<N, C - 1>(weights, value, begin, end, rows, width, shrink, out, step, column);
  }
}

// The same for a few rows; meanwhile the next tile's keys are fetched, in equal parts.
template <class N, class Row>
inline void few_accumulate(const typename N::T* weights, const Rows<Row>& value, int begin, int end, int rows,
                           int width, const typename N::T* shrink, typename N::T* out, Ahead keys) {
  constexpr int kColumns = N::kCols * N::kLanes;
  const int lines = keys.share(int64_t(end - begin) * ((width + kColumns - 1) / kColumns));
  accumulate<N>(weights, value, begin, end, rows, width, shrink, out, [&] { keys.fetch(lines); });
}

// Containment: in a tile with dropped pairs a NaN or Inf of v must reach the rows that keep its key and no other,
// and 0 * NaN is NaN. So the product reads a copy of v with such elements zeroed, and they are added afterwards,
// row by row. The finite elements keep their order of additions: a row's bits do not depend on its neighbours.
template <class N, class Row>
inline bool all_finite(const Rows<Row>& value, int count, int width) {
  typedef typename N::T T;
  typename N::V bad = N::set(0);  // x - x is 0, or NaN for NaN and Inf
  for (int j = 0; j < count; ++j) {
    const Row* row = value.at(j);
    for (int c = 0; c < width; c += N::kLanes) {
      const typename N::V x = N::load(row + c);
      bad = N::add(bad, N::sub(x, x));
    }
  }
  T lanes[N::kLanes], rest = 0;
  N::store(lanes, bad);
  for (T lane : lanes) rest += lane;
  return rest == 0;
}

template <class Row, class T>
Rows<T> zero_nonfinite(const Rows<Row>& value, int count, int width, T* copy) {
  for (int j = 0; j < count; ++j) {
    for (int c = 0; c < width; ++c) {
      const T x = widen(value.at(j)[c]);
      copy[j * ptrdiff_t(width) + c] = x - x == 0 ? x : 0;
    }
  }
  return {copy, width};
}

template <class N, class Stored>
void add_nonfinite(const Panel& panel, int64_t first, int begin, int end, const typename N::T* weights, int width,
                   typename N::T* out) {
  typedef typename N::T T;
  const Input& value = panel.p.value;
  for (int j = begin; j < end; ++j) {
    const char* from = value.data + value.head[panel.head(0)] + (first + j) * value.row;
    for (int c = 0; c < panel.p.dv; ++c) {
      const T x = widen(load_any<Stored>(from + c * value.col));
      if (x - x == 0) continue;
      for (int r = 0; r < panel.count; ++r) {
        if (!sees<T>(panel, r, first + j)) continue;
        out[ptrdiff_t(r) * width + c] += weights[ptrdiff_t(j) * Scratch<N>::kPanel + r] * x;
      }
    }
  }
}
