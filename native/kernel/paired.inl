// SPDX-License-Identifier: Apache-2.0
// Both products of bfloat16 by pairs of its elements, in the loops of product.inl: of q . k neighbouring columns are a
// pair, of weights . v neighbouring keys. Weights are rounded to bfloat16 for it.

template <>
struct Unit<Paired> {
  typedef Paired N;
  struct Use {
    Use() {}
  };
  static constexpr bool kUse = true, kAsStored = true;
  static constexpr int kPanel = N::kLanes * N::kCols;

  Pair* query;   // [panel][pair of columns][lane]
  Pair* key;     // [key][pair of columns]: keys that cannot be read as they lie
  Pair* value;   // [pair of keys][padded dv]
  Pair* weight;  // [pair of keys][lane]
  Apart<N> apart;
  Rows<Pair> keys;
  int deep, wide;  // pairs of columns of k, columns of v
  bool all_fit;    // of the tile's values

  Unit(Cutter& cut, int tile, int d, int dv) : apart(cut, tile), deep(up_to(d, 2) / 2), wide(padded<N>(dv)) {
    cut(query, size_t(Apart<N>::kRows) * deep);
    cut(key, size_t(tile) * deep);
    cut(value, size_t(up_to(tile, 2) / 2) * wide);
    cut(weight, size_t(up_to(tile, 2) / 2) * kPanel);
  }

  // From [d][lane] of each panel.
  void take_queries(const Problem& p, int rows, const float* from) {
    for (int first = 0; first < rows; first += kPanel) {
      for (int l = 0; l < kPanel; l += N::kLanes) {
        const float* const lanes = from + ptrdiff_t(first) * p.d + l;
        typename N::V size = N::set(0);
        for (int c = 0; c < p.d; c += 2) {
          const typename N::V x = N::load(lanes + ptrdiff_t(c) * kPanel), zero = N::set(0);
          const typename N::V y = c + 1 < p.d ? N::load(lanes + ptrdiff_t(c + 1) * kPanel) : zero;
          size = N::max(size, N::max(N::max(x, N::sub(zero, x)), N::max(y, N::sub(zero, y))));
          N::store(query + (ptrdiff_t(first) * deep + ptrdiff_t(c / 2) * kPanel + l), N::pair(x, y));
        }
        float most[N::kLanes];
        N::store(most, size);
        for (int i = 0; i < N::kLanes; ++i) apart.query_fits[first + l + i] = fits_scale(p) && fits_scores(most[i]);
      }
    }
  }

  // Keys that lie in whole pairs are read in place.
  template <class Row>
  void take_keys(const Rows<Row>& from, int count, int d) {
    keys = {key, deep};
    if constexpr (sizeof(Row) == sizeof(BFloat16)) {
      if (d % 2 == 0 && from.row % 2 == 0) keys = {reinterpret_cast<const Pair*>(from.data), from.row / 2};
    }
    if (keys.data == key) {
      for (int j = 0; j < count; ++j) {
        for (int c = 0; c < d; c += 2) key[ptrdiff_t(j) * deep + c / 2] = {near(from, j, c, d), near(from, j, c + 1, d)};
      }
    }
    const bool all = keys_fit(0, count);
    for (int j = 0; j < count; ++j) apart.key_fits[j] = all || keys_fit(j, j + 1);
  }
  template <class Row>
  static BFloat16 near(const Rows<Row>& from, int r, int c, int width) {
    BFloat16 x{};
    if (c < width) narrow(widen(from.at(r)[c]), x);
    return x;
  }
  bool keys_fit(int begin, int end) const {
    typename N::Sizes sizes;
    bool fit = true;
    for (int j = begin; j < end; ++j) {
      int c = 0;
      for (; c + N::kLanes <= deep; c += N::kLanes) sizes.add(N::load(keys.at(j) + c));
      for (; c < deep; ++c) fit &= fits_scores(widen(keys.at(j)[c].first)) & fits_scores(widen(keys.at(j)[c].second));
    }
    return fit && sizes.at_most(nearest(kMostFactor));
  }
  static BFloat16 nearest(float x) {
    BFloat16 y;
    narrow(x, y);
    return y;
  }

  template <class Row>
  void take_values(const Rows<Row>& from, int count, int dv, float* others) {
    typename N::Sizes sizes;
    for (int j = 0; j < count; j += 2) {
      Pair* const to = value + ptrdiff_t(j / 2) * wide;
      int c = 0;
      if constexpr (sizeof(Row) == sizeof(BFloat16)) {
        for (; j + 1 < count && c + 2 * N::kLanes <= dv; c += 2 * N::kLanes) {
          typename N::Pairs x[2];
          N::pair(from.at(j) + c, from.at(j + 1) + c, x);
          for (int i = 0; i < 2; ++i) {
            sizes.add(x[i]);
            N::store(to + c + i * N::kLanes, x[i]);
          }
        }
      }
      for (; c < wide; c += N::kLanes) {
        for (int i = c; i < c + N::kLanes; ++i) {
          to[i] = {near(from, j, i, dv), j + 1 < count ? near(from, j + 1, i, dv) : BFloat16{}};
        }
        sizes.add(N::load(to + c));
      }
    }
    all_fit = sizes.at_most(nearest(kMostValue)) && sizes.at_least(nearest(kLeastValue));
    if (all_fit) return;
    set_values_apart<N>(from, count, dv, others);
    for (ptrdiff_t i = 0; i < ptrdiff_t(up_to(count, 2) / 2) * wide; ++i) {
      if (!fits_product(widen(value[i].first))) value[i].first = {};
      if (!fits_product(widen(value[i].second))) value[i].second = {};
    }
  }

  // scores[key][lane] for keys [begin, end).
  template <int C, class Row>
  void score(const Panel& panel, const Rows<Row>& from, int begin, int end, const float* queries, float* to,
             const Ahead& ahead) {
    const Pair* const of = query + ptrdiff_t(panel.first) * deep;
    score_rows<N, C>(panel, keys, begin, end, of, deep, to, ahead);
    apart.template score<C>(panel, from, begin, end, queries, to);
  }

  // Weights of keys [begin, end); of a key that is half of such a pair, 0.
  void take_weights(const float* weights, int begin, int end, int rows) {
    for (int j = begin / 2; j < (end + 1) / 2; ++j) {
      for (int l = 0; l < rows; l += N::kLanes) {
        const auto of = [&](int k) {
          return begin <= k && k < end ? N::load(weights + ptrdiff_t(k) * kPanel + l) : N::set(0);
        };
        N::store(weight + ptrdiff_t(j) * kPanel + l, N::pair(of(2 * j), of(2 * j + 1)));
      }
    }
  }

  // out = shrink * out + weights . v, as accumulate.inl has it.
  void weigh_values(const Panel& panel, const float* weights, int begin, int end, int width, const float* shrink,
                  float* out, const Ahead& ahead) {
    take_weights(weights, begin, end, panel.count);
    const Rows<Pair> read{value, wide};
    const int first = begin / 2, last = (end + 1) / 2;
    if (reads_once<N>(panel)) {
      few_accumulate<N>(weight, read, first, last, panel.count, width, shrink, out, OfPairs{ahead});
    } else {
      accumulate<N>(weight, read, first, last, panel.count, width, shrink, out, Alone{});
    }
  }

  // Two rows of what comes next for each step; what is read itself is near.
  struct OfPairs {
    const Ahead& ahead;
    template <int kBytes, class Row>
    auto from(int pair, Rows<Row>) const {
      return ahead.template from<kBytes>(2 * pair);
    }
  };
};
