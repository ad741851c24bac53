// SPDX-License-Identifier: Apache-2.0
// scores[key][lane] = scale * (q . k): one chain over d per score, d ascending, in either of two ways.

// Queries in the lanes: for keys [begin, end) of a tile, against a panel. `scale` points at a vector of equal
// numbers: held in a register, it would leave AVX2 one too few for the sums.
template <class N, int C, class Row, class Of, class Beside>
inline void scores(const Rows<Row>& key, int begin, int end, const Of* query, int d, const typename N::T* scale,
                   typename N::T* to, const Beside& beside) {
  constexpr int kPanel = Scratch<N>::kPanel;
  product<N, C>(
      Left<Row>{key.at(begin), key.row, 1}, Right<Of>{query, kPanel}, end - begin, d,
      [=](int r, int c, typename N::V dot) {
        N::store(to + ptrdiff_t(begin + r) * kPanel + c * N::kLanes, N::mul(dot, N::load(scale)));
      },
      [=](int r) { return beside.template from<64>((begin + r) / 2); });
}

// Up to so many rows are a few: keys then are the better lanes, half of which queries would leave idle. More than four
// need more registers than 16 (experiments/0013).
template <class N>
constexpr int kFew = N::kLanes < 16 ? 4 : 8;

// Columns of keys that are turned at a time. Of four, two vectors of keys go in step, so that there are enough chains;
// of eight, there would not be enough registers.
template <class N, class Row>
constexpr int kTurn = sizeof(Row) == sizeof(typename N::T) ? N::kTurn : 4;
template <class N, class Row>
constexpr int kGroups = kTurn<N, Row> > 4 ? 1 : 2;

// Keys of a tile some rows on, line after line, so many bytes at each step: what FarAndNear is to values.
template <int kBytes>
struct Near {
  uintptr_t at, gap;
  int lines, left;
  void operator()() {
#pragma GCC unroll 8
    for (int i = 0; i < kBytes; i += 64) {
      __builtin_prefetch(reinterpret_cast<const void*>(at));
      at += 64;
      if (--left != 0) continue;
      at += gap;
      left = lines;
    }
  }
};

template <class N, int kBytes, class Row>
auto near_keys(const Rows<Row>& key, int first, int d) {
  constexpr int kNear = N::template kNearKeys<Row>;
  if constexpr (kNear > 0) {
    const uintptr_t row = uintptr_t(key.row) * sizeof(Row);
    const int lines = lines_of(d * ptrdiff_t(sizeof(Row)));
    return Near<kBytes>{reinterpret_cast<uintptr_t>(key.at(first)) + kNear * row, row - uintptr_t(lines) * 64, lines,
                        lines};
  } else {
    return Alone::Lines{};
  }
}

// Keys in the lanes, for the first R rows of a panel: a few rows would leave most lanes of the other way idle.
template <class N, int R, int G, class Row, class Of>
inline void few_scores_step(const Rows<Row>& key, int first, const Of* query, int d, const typename N::T* scale,
                            typename N::T* to, const Ahead& ahead) {
  typedef typename N::V V;
  typedef decltype(N::load(query)) Factor;
  constexpr int kPanel = Scratch<N>::kPanel, kQuads = (R + 3) / 4;
  constexpr int kSize = int(sizeof(Row)), kColumns = kTurn<N, Row>, kBytes = G * N::kLanes * kColumns * kSize;
  auto fetch = ahead.template from<kBytes>(first / 2);
  auto near = near_keys<N, kBytes>(key, first, d);
  V acc[G][kQuads][4];
#pragma GCC unroll 16
  for (int i = 0; i < G * kQuads * 4; ++i) acc[i / (kQuads * 4)][i / 4 % kQuads][i % 4] = N::set(0);
  const auto add = [&](const Factor(&column)[G], const Of* q) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Factor x = N::set(q[r]);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) acc[g][r / 4][r % 4] = N::fma(column[g], x, acc[g][r / 4][r % 4]);
    }
  };
  int c = 0;
  for (; c + kColumns <= d; c += kColumns) {
    fetch();
    near();
    Factor columns[G][kColumns];
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) N::load_columns(key.at(first + g * N::kLanes) + c, key.row, columns[g]);
#pragma GCC unroll 8
    for (int i = 0; i < kColumns; ++i) {
      Factor column[G];
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) column[g] = columns[g][i];
      add(column, query + ptrdiff_t(c + i) * kPanel);
    }
  }
  for (; c < d; ++c) {
    Factor column[G];
    for (int g = 0; g < G; ++g) {
      Of lane[N::kLanes];
      for (int l = 0; l < N::kLanes; ++l) lane[l] = widen(key.at(first + g * N::kLanes + l)[c]);
      column[g] = N::load(lane);
    }
    add(column, query + ptrdiff_t(c) * kPanel);
  }
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[g][r / 4][r % 4] = N::mul(acc[g][r / 4][r % 4], N::load(scale));
#pragma GCC unroll 2
    for (int quad = 0; quad < kQuads; ++quad) {
      N::store_columns(acc[g][quad], to + ptrdiff_t(first + g * N::kLanes) * kPanel + 4 * quad, kPanel);
    }
  }
}

template <class N, int R, class Row, class Of>
inline void few_scores(const Rows<Row>& key, int begin, int end, const Of* query, int d, const typename N::T* scale,
                       typename N::T* to, const Ahead& ahead) {
  constexpr int kStep = kGroups<N, Row> * N::kLanes;
  int j = begin;
  for (; j + kStep <= end; j += kStep) few_scores_step<N, R, kGroups<N, Row>>(key, j, query, d, scale, to, ahead);
  for (; j + N::kLanes <= end; j += N::kLanes) few_scores_step<N, R, 1>(key, j, query, d, scale, to, ahead);
  if (j < end) scores<N, 1>(key, j, end, query, d, scale, to, ahead);
}

// Features in the lanes: keys of one row need not be turned, but their sums are not those of a chain
// (experiments/0017).
constexpr int kAcrossColumns = 512;
template <class N>
inline bool may_go_across(const Panel& panel, int d) {
  return panel.p.any_order && panel.block.alone && d % N::kLanes == 0 && d <= kAcrossColumns;
}

template <class N, class T>
inline void scores_across(const Rows<T>& key, int begin, int end, const T* query, int d, const T* scale, T* to,
                          const Ahead& ahead) {
  constexpr int kPanel = Scratch<N>::kPanel, kSize = int(sizeof(T)), kWide = 8 * N::kLanes;
  T q[kAcrossColumns], done[N::kLanes];
  for (int c = 0; c < d; ++c) q[c] = query[ptrdiff_t(c) * kPanel];
  int j = begin;
  for (; j + N::kLanes <= end; j += N::kLanes) {
    auto fetch = ahead.template from<N::kLanes * kSize>(j / 2);
    auto near = near_keys<N, 64>(key, j, d);
    typename N::V sum[N::kLanes];
#pragma GCC unroll 4
    for (int l = 0; l < N::kLanes; ++l) {
      const T* const row = key.at(j + l);
      typename N::V x = N::set(0);
      const auto add = [&](int c) {
        fetch();
        if (c * kSize % 64 == 0) near();
        x = N::fma(N::load(row + c), N::load(q + c), x);
      };
      int c = 0;
      for (; c + kWide <= d; c += kWide) {
#pragma GCC unroll 8
        for (int w = 0; w < 8; ++w) add(c + w * N::kLanes);
      }
      for (; c < d; c += N::kLanes) add(c);
      sum[l] = x;
    }
    N::store(done, N::mul(N::sums(sum), N::load(scale)));
    for (int l = 0; l < N::kLanes; ++l) to[ptrdiff_t(j + l) * kPanel] = done[l];
  }
  if (j < end) scores<N, 1>(key, j, end, query, d, scale, to, ahead);
}

// Of one panel, whichever way is the faster for so many rows.
template <class N, int C, class Row, class Of>
void score_rows(const Panel& panel, const Rows<Row>& key, int begin, int end, const Of* query, int d,
                const typename N::T* scale, typename N::T* to, const Ahead& ahead) {
  if constexpr (C == 1 && N::kAcross && sizeof(Row) == sizeof(Of) && sizeof(Of) == sizeof *scale) {
    if (may_go_across<N>(panel, d)) return scores_across<N>(key, begin, end, query, d, scale, to, ahead);
  }
  if constexpr (C == 1 && N::kLanes > 1) {
    const auto few = [&](auto rows) {
      few_scores<N, decltype(rows)::value>(key, begin, end, query, d, scale, to, ahead);
    };
    if (panel.count == 1) return few(Count<1>{});
    if (panel.count == 2) return few(Count<2>{});
    if (panel.count == 3) return few(Count<3>{});
    if (panel.count <= 4) return few(Count<4>{});
    if (panel.count <= kFew<N>) return few(Count<kFew<N>>{});
  }
  if (reads_once<N>(panel)) return scores<N, C>(key, begin, end, query, d, scale, to, ahead);
  scores<N, C>(key, begin, end, query, d, scale, to, Alone{});
}
