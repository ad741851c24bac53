// SPDX-License-Identifier: Apache-2.0
// Divide once, apply the sink, write the row statistics, and give the empty row its rule.

// One bit pattern for every NaN and for zero, so that no row shows which road its neighbours made it take: adding
// an all-dropped tile turns -0 into +0, and the sign of a NaN tells the operation that made it.
template <class T>
inline T canonical(T x) {
  return x != x ? static_cast<T>(__builtin_nanf("")) : x + 0;
}

template <class T>
inline void write_stat(void* stat, int64_t at, T value) {
  if (stat) static_cast<T*>(stat)[at] = canonical(value);
}

template <class T, class Stored>
inline void write_row(const Output& out, int64_t head, int64_t query, const T* from, int width, T divisor, T factor) {
  char* row = out.data + out.head[head] + query * out.row;
  const auto element = [&](int c, char* at) {
    Stored x;
    narrow(canonical(factor * (from[c] / divisor)), x);
    memcpy(at, &x, sizeof x);
  };
  if (out.col == sizeof(Stored)) {  // said apart, for the compiler's sake: it then writes whole vectors
    for (int c = 0; c < width; ++c) element(c, row + c * ptrdiff_t(sizeof(Stored)));
    return;
  }
  for (int c = 0; c < width; ++c) element(c, row + c * out.col);
}

// What a sink leaves to the keys: sigmoid(lse - sink), 1 where there is none.
inline double share_of_keys(const Problem& p, int64_t head, double lse) {
  return p.sinks ? 1 / (1 + ::exp(p.sinks[head] - lse)) : 1;
}

// A sum of 0 in a row that keeps keys: all its scores are -inf, and 0/0 is no number.
template <class N>
inline double logsumexp(const State<N>& s, int r) {
  const bool none = s.seen[r] && s.sum[r] == 0;
  return none ? __builtin_nan("") : s.max[r] + ::log(static_cast<double>(s.sum[r]));
}

// `seen` tells, from mask and bias alone, whether the row keeps any key: a score of -inf or NaN is not an absent
// key. An empty row has sum 0, and is written as 0 / 1.
template <class N, class Stored>
void finish(const Problem& p, const Block& block, const State<N>& s) {
  typedef typename N::T T;
  for (int r = 0; r < block.rows; ++r) {
    const T* const row = s.out + ptrdiff_t(r) * padded<N>(p.dv);
    const int64_t head = block.head[r], query = block.query[r];
    const double lse = p.sinks || p.stats.lse ? logsumexp(s, r) : 0;  // a logarithm is dear where rows are short
    const double share = s.seen[r] ? share_of_keys(p, head, lse) : 1;
    const T divisor = s.seen[r] ? s.sum[r] : T(1);
    write_row<T, Stored>(p.out, head, query, row, p.dv, divisor, static_cast<T>(share));
    if (p.state.data) write_row<T, T>(p.state, head, query, row, p.dv, divisor, T(1));
    const int64_t at = head * p.queries + query;
    write_stat<T>(p.stats.max, at, s.max[r]);
    write_stat<T>(p.stats.sum, at, static_cast<T>(s.sum[r] / share));
    write_stat<T>(p.stats.lse, at, static_cast<T>(lse));
  }
}
