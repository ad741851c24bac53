// SPDX-License-Identifier: Apache-2.0
// scores[key][lane] = scale * (q . k): one chain over d per score, d ascending, in either of two ways.

// Queries in the lanes: for keys [begin, end) of a tile, against a panel.
template <class N, int C, class Row>
inline void scores(const Rows<Row>& key, int begin, int end, const typename N::T* query, int d, typename N::T scale,
                   typename N::T* to) {
  constexpr int kPanel = Scratch<N>::kPanel;
  const typename N::V by = N::set(scale);
  product<N, C>(Left<Row>{key.at(begin), key.row, 1}, Right<typename N::T>{query, kPanel}, end - begin, d,
                [&](int r, int c, typename N::V dot) {
                  N::store(to + ptrdiff_t(begin + r) * kPanel + c * N::kLanes, N::mul(dot, by));
                });
}

// Rows to be brought near, a while before they are read: beyond `end` there are none.
template <class Row>
struct Ahead {
  Rows<Row> rows;
  int width;
  int64_t end;
  void fetch(int64_t first, int count) const {
    constexpr int kLine = 64 / sizeof(Row);
    for (int64_t r = first; r < first + count && r < end; ++r) {
      for (int c = 0; c < width; c += kLine) __builtin_prefetch(rows.at(r) + c, 0, 2);
    }
  }
};

// Keys in the lanes, for the first R rows of a panel: a few rows would leave most lanes of the other way idle. G
// vectors of keys go in step, so that there are enough chains.
template <class N, int R, int G, class Row>
inline void few_scores_step(const Rows<Row>& key, int first, const typename N::T* query, int d, typename N::T scale,
                            typename N::T* to) {
  typedef typename N::V V;
  typedef typename N::T T;
  constexpr int kPanel = Scratch<N>::kPanel;
  V acc[G][4];
#pragma GCC unroll 16
  for (int i = 0; i < G * 4; ++i) acc[i / 4][i % 4] = N::set(0);
  for (int c0 = 0; c0 < d; c0 += 4) {
    const int columns = d - c0 < 4 ? d - c0 : 4;
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      V column[4];
      if (columns == 4) {
        N::load_columns(key.at(first + g * N::kLanes) + c0, key.row, column);
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) {
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r) {
            acc[g][r] = N::fma(column[c], N::set(query[ptrdiff_t(c0 + c) * kPanel + r]), acc[g][r]);
          }
        }
        continue;
      }
      for (int c = 0; c < columns; ++c) {
        T lane[N::kLanes];
        for (int l = 0; l < N::kLanes; ++l) lane[l] = widen(key.at(first + g * N::kLanes + l)[c0 + c]);
        const V x = N::load(lane);
        for (int r = 0; r < R; ++r) acc[g][r] = N::fma(x, N::set(query[ptrdiff_t(c0 + c) * kPanel + r]), acc[g][r]);
      }
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) {
    for (int r = 0; r < R; ++r) acc[g][r] = N::mul(acc[g][r], N::set(scale));
    N::store_columns(acc[g], to + ptrdiff_t(first + g * N::kLanes) * kPanel, kPanel);
  }
}

template <class N, int R, class Row>
inline void few_scores(const Rows<Row>& key, int begin, int end, const typename N::T* query, int d,
                       typename N::T scale, typename N::T* to, const Ahead<Row>& keys, const Ahead<Row>& values) {
  constexpr int kGroups = R == 4 ? 2 : 4, kStep = kGroups * N::kLanes;
  int j = begin;
  for (; j + kStep <= end; j += kStep) {
    keys.fetch(j + 2 * kStep, kStep);
    values.fetch(j, kStep);
    few_scores_step<N, R, kGroups>(key, j, query, d, scale, to);
  }
  for (; j + N::kLanes <= end; j += N::kLanes) few_scores_step<N, R, 1>(key, j, query, d, scale, to);
  if (j < end) scores<N, 1>(key, j, end, query, d, scale, to);
}
