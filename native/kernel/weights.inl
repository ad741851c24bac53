// SPDX-License-Identifier: Apache-2.0
// Attention weights of a block of rows, re-made from q, k and the row statistics by the very pieces of the forward
// pass: the same scores bit for bit, so that weights . v is the output to rounding, at any size of the scores.

template <class N, int C>
void weigh_panel(const Panel& panel, const Tile<N, typename N::T>& t, int64_t begin, Scratch<N>& s) {
  typedef typename N::T T;
  typedef typename N::V V;
  constexpr int kPanel = Scratch<N>::kPanel;
  const Problem& p = panel.p;
  const int64_t first = t.first;
  const int count = t.count;
  score_panel<N, C>(panel, t, 0, count, s);
  const bool by_bias = add_to_scores<N, C>(panel, first, 0, count, s);
  V base[C], sum[C];
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) {
    base[c] = base_of<N>(N::load(s.total.max + panel.first + c * N::kLanes));
    sum[c] = N::load(s.total.sum + panel.first + c * N::kLanes);
  }
  for (int j = 0; j < count; ++j) {
    T* const at = s.scores + ptrdiff_t(j) * kPanel;
    V x[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) x[c] = N::sub(N::load(at + c * N::kLanes), base[c]);
    exp<N>(x);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) N::store(at + c * N::kLanes, N::div(x[c], sum[c]));
  }
  if (by_bias) drop_by_biases<N>(panel, first, 0, count, 0, s.scores);
  if (p.mask.kind != Mask::kFull) {
    bool keeps[kBlockRows];
    keep_panel<N>(panel, first, count, s.kept, keeps);
    drop<N, C>(s.kept, 0, count, 0, s.scores);
  }
  for (int r = 0; r < panel.count; ++r) {
    char* row = p.out.data + p.out.head[panel.head(r)] + (panel.query(r) - p.row_begin) * p.out.row;
    for (int j = 0; j < count; ++j) {
      const T x = canonical(s.scores[ptrdiff_t(j) * kPanel + r]);
      memcpy(row + (first - begin + j) * p.out.col, &x, sizeof x);
    }
  }
}

template <class N, class Stored>
void weights(const Problem& p, const Block& block, int64_t begin, int64_t end, char* memory) {
  typedef typename N::T T;
  constexpr int kPanel = Scratch<N>::kPanel;
  const int tile = tile_keys(p.d, p.dv);
  Scratch<N> s(tile, p.d, p.dv, memory);
  prepare<N, Stored>(p, block, {begin, end}, s);
  for (int r = 0; r < N::kBlock; ++r) {
    const int64_t at = r < block.rows ? block.head[r] * p.queries + block.query[r] : 0;
    s.total.max[r] = r < block.rows ? static_cast<const T*>(p.stats.max)[at] : 0;
    s.total.sum[r] = r < block.rows ? static_cast<const T*>(p.stats.sum)[at] : 1;
  }
  for (int64_t first = begin; first < end; first += tile) {
    if (!p.go_on(p.watch)) return;
    const typename Unit<N>::Use use;
    const int count = end - first < tile ? static_cast<int>(end - first) : tile;
    Tile<N, T> t = {first, count, true, {}, {}, {}, Tile<N, T>::kUnknown};
    t.key = take_rows<N, Stored, T>(p.key, block.head[0], first, count, p.d, p.d, true, s.key);
    if constexpr (Unit<N>::kUse) s.unit.take_keys(t.key, count, p.d);
    for (int r = 0; r < block.rows; r += kPanel) {
      const Panel panel{p, block, r, panel_rows(block, r, kPanel)};
      with_vectors<N>(panel.count, [&](auto vectors) { weigh_panel<N, decltype(vectors)::value>(panel, t, begin, s); });
    }
  }
}
