// SPDX-License-Identifier: Apache-2.0
// scores[key][lane] = scale * (q . k) for the keys [begin, end) of a tile: one chain over d per score, d ascending.
template <class N, int C>
inline void scores(const Rows<typename N::T>& key, int begin, int end, const typename N::T* query, int d,
                   typename N::T scale, typename N::T* to) {
  typename N::T* row = to + ptrdiff_t(begin) * Scratch<N>::kPanel;
  const typename N::V by = N::set(scale);
  product<N, C>(key.at(begin), key.row, 1, query, end - begin, d, [&](int r, int c, typename N::V dot) {
    N::store(row + ptrdiff_t(r) * Scratch<N>::kPanel + c * N::kLanes, N::mul(dot, by));
  });
}
