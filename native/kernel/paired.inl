// SPDX-License-Identifier: Apache-2.0
// Both products of bfloat16 by pairs of its elements, in the loops of product.inl: of q . k neighbouring columns are a
// pair, of weights . v neighbouring keys. Weights are rounded to bfloat16 for it.

// Products of pairs are a chain of FMA but for what is below 2^-126, so k is not looked at. A subnormal of k loses
// under 2^-68 beside a q of up to 2^58, and a sum under 2^-126; a k over 2^58, Inf and NaN do what they do in a chain
// of FMA. A row of q with a subnormal is computed apart, for k may be 2^127 or Inf.

template <>
struct Unit<Paired> {
  typedef Paired N;
  struct Use {
    Use() {}
  };
  static constexpr bool kUse = true, kAsStored = true;
  static constexpr int kPanel = N::kLanes * N::kCols;

  Pair* query;    // [panel][pair of columns][lane]
  Pair* key;      // [key][pair of columns]: keys that cannot be read as they lie
  Pair* value;    // [pair of keys][padded dv]
  Pair* weight;   // [pair of keys][lane]
  float* before;  // [row][padded dv]: the output before a tile
  Apart<N> apart;
  Rows<Pair> keys;
  int deep, wide;        // pairs of columns of k, columns of v
  Rows<BFloat16> lying;  // values as they lie
  bool in_place;         // they are not packed
  bool all_fit;          // those of the tile
  bool all_finite;       // if not all fit

  Unit(Cutter& cut, int tile, int d, int dv) : apart(cut, tile), deep(up_to(d, 2) / 2), wide(padded<N>(dv)) {
    cut(query, size_t(Apart<N>::kRows) * deep);
    cut(key, size_t(tile) * deep);
    cut(value, size_t(up_to(tile, 2) / 2) * wide);
    cut(weight, size_t(up_to(tile, 2) / 2) * kPanel);
    cut(before, size_t(kFew<N>) * wide);
  }

  // From [d][lane] of each panel.
  void take_queries(const Problem& p, int rows, const float* from) {
    for (int first = 0; first < rows; first += kPanel) {
      for (int l = 0; l < kPanel; l += N::kLanes) {
        const float* const lanes = from + ptrdiff_t(first) * p.d + l;
        typename N::V most = N::set(0), subnormal = N::set(0);
        const auto look = [&](typename N::V x) {
          const typename N::V size = N::max(x, N::sub(N::set(0), x));
          most = N::max(size, most);
          subnormal = N::max(N::select_less(size, N::set(0x1p-126f), size, N::set(0)), subnormal);
        };
        for (int c = 0; c < p.d; c += 2) {
          const typename N::V x = N::load(lanes + ptrdiff_t(c) * kPanel);
          const typename N::V y = c + 1 < p.d ? N::load(lanes + ptrdiff_t(c + 1) * kPanel) : N::set(0);
          look(x);
          look(y);
          N::store(query + (ptrdiff_t(first) * deep + ptrdiff_t(c / 2) * kPanel + l), N::pair(x, y));
        }
        float sizes[2][N::kLanes];
        N::store(sizes[0], most);
        N::store(sizes[1], subnormal);
        for (int i = 0; i < N::kLanes; ++i) {
          apart.query_fits[first + l + i] = fits_scale(p) && fits_scores(sizes[0][i]) && sizes[1][i] == 0;
        }
      }
    }
  }

  // Keys that lie in whole pairs are read in place: a pair is no more than its two elements.
  template <class Row>
  void take_keys(const Rows<Row>& from, int count, int d) {
    for (int j = 0; j < count; ++j) apart.key_fits[j] = true;
    if constexpr (sizeof(Row) == sizeof(BFloat16)) {
      if (d % 2 == 0 && from.row % 2 == 0) {
        keys = {reinterpret_cast<const Pair*>(from.data), from.row / 2};
        return;
      }
    }
    keys = {key, deep};
    for (int j = 0; j < count; ++j) {
      BFloat16* const to = reinterpret_cast<BFloat16*>(key) + ptrdiff_t(j) * 2 * deep;
      const Row* const row = from.at(j);
      for (int c = 0; c < d; ++c) narrow(float(widen(row[c])), to[c]);
      if (d % 2 != 0) to[d] = {};
    }
  }

  // Values that a few rows read once are put in pairs when they are read, if they lie in whole vectors.
  template <class Row>
  void take_values(const Rows<Row>& from, int count, int dv, bool few, float* others) {
    in_place = false;
    if constexpr (sizeof(Row) == sizeof(BFloat16)) {
      lying = from;
      in_place = few && wide == dv && count % 2 == 0;
    }
    if (!in_place) pack_values(from, count, dv, others);
  }

  template <class Row>
  void pack_values(const Rows<Row>& from, int count, int dv, float* others) {
    for (int j = 0; j < count; j += 2) {
      const bool two = j + 1 < count;
      const Row *const first = from.at(j), *const second = from.at(two ? j + 1 : j);
      for (int c = 0; c < wide; c += N::kLanes) {
        Pair* const to = value + ptrdiff_t(j / 2) * wide + c;
        if constexpr (sizeof(Row) == sizeof(BFloat16)) {
          N::store(to, N::pair(first + c, dv - c, second + c, two ? dv - c : 0));
        } else {  // copies, with zeros up to whole vectors
          N::store(to, N::pair(N::load(first + c), two ? N::load(second + c) : N::set(0)));
        }
      }
    }
    const ptrdiff_t size = ptrdiff_t(up_to(count, 2)) * wide;
    BFloat16* const all = reinterpret_cast<BFloat16*>(value);
    all_fit = fit(all, size);
    if (all_fit) return;
    all_finite = !set_values_apart<N>(from, count, dv, others);
    for (ptrdiff_t i = 0; i < size; ++i) all[i].bits = fits(all[i]) ? all[i].bits : uint16_t(0);
  }

  // fits_product, without branches; and whether it holds for each.
  static bool fits(BFloat16 x) {
    const uint16_t size = x.bits & 0x7fff, over = static_cast<uint16_t>(size - kLeast);
    return (size == 0) | (over <= kMost - kLeast);
  }
  static bool fit(const BFloat16* x, ptrdiff_t count) {
    uint16_t out = 0;
    for (ptrdiff_t i = 0; i < count; ++i) out |= fits(x[i]) ? uint16_t(0) : uint16_t(1);
    return out == 0;
  }
  bool lying_fit(int begin, int end) const {
    for (int j = begin; j < end; ++j) {
      if (!fit(lying.at(j), wide)) return false;
    }
    return true;
  }
  // The upper halves of kLeastValue and kMostValue.
  static constexpr uint16_t kLeast = (127 - 80) << 7, kMost = (127 + 120) << 7;

  // Two rows of values as they lie, put in pairs while they are read.
  struct Zipped {
    static constexpr int kRows = 2;
    const BFloat16* data;
    ptrdiff_t row;
    typename N::Usual* seen;
    typename N::Usual usual;
    template <class>
    static constexpr int kBytes = N::kLanes * int(sizeof(Pair));
    template <class>
    static constexpr int kNear = 32;
    template <class>
    typename N::Pairs load(int c) {
      const typename N::Pairs x = N::pair(data + c * N::kLanes, data + row + c * N::kLanes);
      usual.add(x);
      return x;
    }
    void next() { data += 2 * row; }
    void end() const { seen->add(usual); }
  };
  struct Zip {
    Rows<BFloat16> rows;
    typename N::Usual* seen;
    friend Zipped right_of(const Zip& zip, int begin, int column) {
      return {zip.rows.at(2 * begin) + column, zip.rows.row, zip.seen, {}};
    }
  };

  // scores[key][lane] for keys [begin, end).
  template <int C, class Row>
  void score(const Panel& panel, const Rows<Row>& from, int begin, int end, const float* queries, const float* scale,
             float* to, const Ahead& ahead) {
    const Pair* const of = query + ptrdiff_t(panel.first) * deep;
    score_rows<N, C>(panel, keys, begin, end, of, deep, scale, to, ahead);
    apart.template score<C>(panel, from, begin, end, queries, scale, to);
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
  template <class Row>
  void weigh_values(const Panel& panel, const Rows<Row>& from, int count, const float* weights, int begin, int end,
                    const float* shrink, float* out, float* others, const Ahead& ahead) {
    take_weights(weights, begin, end, panel.count);
    const int first = begin / 2, last = (end + 1) / 2;
    if (in_place) {
      const size_t size = size_t(panel.count) * wide * sizeof *out;
      memcpy(before, out, size);
      typename N::Usual seen;
      few_accumulate<N>(weight, Zip{lying, &seen}, first, last, panel.count, wide, shrink, out, ahead);
      all_fit = seen.all() || lying_fit(2 * first, 2 * last);
      if (all_fit) return;
      memcpy(out, before, size);
      pack_values(from, count, panel.p.dv, others);
    }
    accumulate<N>(weight, Rows<Pair>{value, wide}, first, last, panel.count, wide, shrink, out, Alone{});
  }
};
