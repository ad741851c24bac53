// SPDX-License-Identifier: Apache-2.0
// The register tile that both products of attention are made of.

// A number that a template takes from a call.
template <int N>
struct Count {
  static constexpr int value = N;
};

// A factor as it lies: element (r, k) of the left one at `data[r * row + k * step]`, and row k of the right one, whose
// columns are the lanes, at `data + k * row`. The right one is read row by row, by `load` a vector of its columns;
// `end` comes last.
template <class E>
struct Left {
  const E* data;
  ptrdiff_t row, step;
};
template <class E>
struct Right {
  static constexpr int kRows = 1;  // that one step reads
  const E* data;
  ptrdiff_t row;
  template <class N>
  static constexpr int kBytes = N::kLanes * int(sizeof(E));
  template <class N>
  static constexpr int kNear = N::template kNearValues<E>;
  template <class N>
  auto load(int c) const {
    return N::load(data + c * N::kLanes);
  }
  void next() { data += row; }
  void end() const {}
};
template <class E>
Right<E> right_of(const Rows<E>& rows, int begin, int column) {
  return {rows.at(begin) + column, rows.row};
}

// Of values in groups: of no more columns than a group has.
template <class N, class E>
Right<E> right_of(const Values<N, E>& values, int begin, int column) {
  return {values.at(begin, column), values.rows.row};
}

// What is done beside a product: nothing.
struct Alone {
  struct Lines {
    void operator()() const {}
  };
  template <int>
  Lines from(int) const {
    return {};
  }
  template <int, int, class B>
  Lines from(int, const B&) const {
    return {};
  }
};

// One k: a step of R * C chains, their rows from the first to the last, or back.
template <class N, bool kBack, int R, int C, class A, class B>
[[gnu::always_inline]] inline void product_step(typename N::V (&acc)[R][C], const Left<A>& a, B& b) {
  decltype(b.template load<N>(0)) col[C];
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) col[c] = b.template load<N>(c);
#pragma GCC unroll 24
  for (int i = 0; i < R; ++i) {
    const int r = kBack ? R - 1 - i : i;
    const auto x = N::set(widen(a.data[r * a.row]));
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) acc[r][c] = N::fma(x, col[c], acc[r][c]);
  }
}

// sum over k of a[r][k] * b[k][lane], for R rows and C columns of vectors: one chain per element, k ascending from
// zero. done(r, c, sum) receives each column of vectors; step() is called once per k. Every second
// step takes the rows backwards: where each chain had the same place in each step, AVX2's FMA units were idle now and
// then (experiments/0022). That the loop can be left between two steps keeps GCC from mixing them.
template <class N, int R, int C, class A, class B, class Done, class Step>
inline void product_tile(Left<A> a, B b, int n, Done done, Step step) {
  typedef typename N::V V;
  V acc[R][C];
#pragma GCC unroll 24
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) acc[r][c] = N::set(0);
  }
  const auto next = [&] {
    a.data += a.step;
    b.next();
  };
  for (int k = 0; k < n; ++k, next()) {
    step();
    product_step<N, false>(acc, a, b);
    next();
    if (++k == n) break;
    step();
    product_step<N, true>(acc, a, b);
  }
  b.end();
#pragma GCC unroll 24
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) done(r, c, acc[r][c]);
  }
}

// The same for any number of rows: register tiles with as many sums as there are registers for, then smaller ones.
// done(r, c, sum) and step(r), which gives the steps beside the tile that begins there, see r in [0, rows).
template <class N, int C, int R = N::kSums / C, class A, class B, class Done, class Step>
inline void product(Left<A> a, B b, int rows, int n, Done done, Step step) {
  int r0 = 0;
  // Closures hold copies: what they referred to would be read again after each store.
  const auto shifted = [=](int by) { return [=](int r, int c, typename N::V x) { done(by + r, c, x); }; };
  for (; r0 + R <= rows; r0 += R) {
    product_tile<N, R, C>(a, b, n, shifted(r0), step(r0));
    a.data += R * a.row;
  }
  if constexpr (R > 6) {
    product<N, C, R / 2>(a, b, rows - r0, n, shifted(r0), [=](int r) { return step(r0 + r); });
  } else {
    switch (rows - r0) {
      case 1:
        if constexpr (R > 1) product_tile<N, 1, C>(a, b, n, shifted(r0), step(r0));
        break;
      case 2:
        if constexpr (R > 2) product_tile<N, 2, C>(a, b, n, shifted(r0), step(r0));
        break;
      case 3:
        if constexpr (R > 3) product_tile<N, 3, C>(a, b, n, shifted(r0), step(r0));
        break;
      case 4:
        if constexpr (R > 4) product_tile<N, 4, C>(a, b, n, shifted(r0), step(r0));
        break;
      case 5:
        if constexpr (R > 5) product_tile<N, 5, C>(a, b, n, shifted(r0), step(r0));
        break;
    }
  }
}
