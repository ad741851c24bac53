// SPDX-License-Identifier: Apache-2.0
// out = shrink * out + weights . v: the tile's own product starts at zero and is added once, keys ascending. Here the
// columns of v are the lanes, so that its rows are read once, in whole lines.

template <class N, int C, class Weight, class Value, class Beside>
inline void accumulate_columns(const Weight* weights, const Value& value, int begin, int end, int rows, int width,
                               const typename N::T* shrink, typename N::T* out, const Beside& beside, int column) {
  typedef typename N::T T;
  constexpr int kPanel = Scratch<N>::kPanel;
  const auto right = right_of(value, begin, column);
  product<N, C>(
      Left<Weight>{weights + ptrdiff_t(begin) * kPanel, 1, kPanel}, right, rows, end - begin,
      [=](int r, int c, typename N::V block) {
        T* const at = out + ptrdiff_t(r) * width + column + c * N::kLanes;
        N::store(at, N::fma(N::load(at), N::set(shrink[r]), block));
      },
      [=](int) {
        typedef decltype(right) Read;
        constexpr int kBytes = C * Read::template kBytes<N>, kNear = Read::template kNear<N>;
        return beside.template from<kBytes, kNear>((end + begin + (end - begin) * column / width) / 2, right);
      });
}

// C vectors of columns at a time, then half as many.
template <class N, int C = N::kWide, class Weight, class Value, class Beside>
inline void accumulate(const Weight* weights, const Value& value, int begin, int end, int rows, int width,
                       const typename N::T* shrink, typename N::T* out, const Beside& beside, int column = 0) {
  for (; column + C * N::kLanes <= width; column += C * N::kLanes) {
    accumulate_columns<N, C>(weights, value, begin, end, rows, width, shrink, out, beside, column);
  }
  if constexpr (C > 1) {
    if (column < width) accumulate<N, C / 2>(weights, value, begin, end, rows, width, shrink, out, beside, column);
  }
}

// The same for rows that are alone in their block: with fewer of them, more columns at a time, so that there are enough
// chains.
template <class N, class Weight, class Value, class Beside>
inline void few_accumulate(const Weight* weights, const Value& value, int begin, int end, int rows, int width,
                           const typename N::T* shrink, typename N::T* out, const Beside& ahead) {
  if (rows == 1) return accumulate<N, 8>(weights, value, begin, end, rows, width, shrink, out, ahead);
  if (rows <= 3) return accumulate<N, 4>(weights, value, begin, end, rows, width, shrink, out, ahead);
  accumulate<N>(weights, value, begin, end, rows, width, shrink, out, ahead);
}

// Containment: a NaN or Inf of v must reach the rows that keep its key and no other, and 0 * NaN is NaN. So a row that
// drops a pair reads a copy of v with such elements zeroed, and they are added afterwards.
template <class N, class Row>
inline bool all_finite(const Values<N, Row>& value, int count, int width) {
  typedef typename N::T T;
  typename N::V bad = N::set(0);  // x - x is 0, or NaN for NaN and Inf
  for (int j = 0; j < count; ++j) {
    for (int c = 0; c < width; c += N::kLanes) {
      const typename N::V x = N::load(value.at(j, c));
      bad = N::add(bad, N::sub(x, x));
    }
  }
  T lanes[N::kLanes], rest = 0;
  N::store(lanes, bad);
  for (T lane : lanes) rest += lane;
  return rest == 0;
}

template <class N, class Row, class T>
Rows<T> zero_nonfinite(const Values<N, Row>& value, int count, int width, T* copy) {
  for (int j = 0; j < count; ++j) {
    for (int c = 0; c < width; ++c) {
      const T x = widen(*value.at(j, c));
      copy[j * ptrdiff_t(width) + c] = x - x == 0 ? x : 0;
    }
  }
  return {copy, width};
}

template <class E>
inline bool finite_row(const E* row, int width) {
  int odd = 0;
  for (int c = 0; c < width; ++c) {
    const auto x = widen(row[c]);
    odd |= !(x - x == 0);
  }
  return !odd;
}

template <class N, class Stored>
void add_nonfinite(const Panel& panel, int r, int64_t first, int begin, int end, const typename N::T* weights,
                   typename N::T* out) {
  typedef typename N::T T;
  const Input& value = panel.p.value;
  for (int j = begin; j < end; ++j) {
    const char* const from = value.data + value.head[panel.head(0)] + (first + j) * value.row;
    if (lies_in_rows<Stored>(value, from) && finite_row(reinterpret_cast<const Stored*>(from), panel.p.dv)) continue;
    for (int c = 0; c < panel.p.dv; ++c) {
      const T x = widen(load_any<Stored>(from + c * value.col));
      if (x - x == 0 || !sees<T>(panel, r, first + j)) continue;
      out[c] += weights[ptrdiff_t(j) * Scratch<N>::kPanel + r] * x;
    }
  }
}
