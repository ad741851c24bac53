// SPDX-License-Identifier: Apache-2.0
// What the loop asks of a target whose products are those of tiles.inl: both factors brought into tiles, scores and
// output as the other targets leave them.

template <class V_, int K, int W>
struct Unit<Pieced<V_, K, W>> {
  typedef Pieced<V_, K, W> N;
  typedef Tiles Use;
  static constexpr bool kUse = true;
  // Rows of bfloat16 are operands as they lie.
  static constexpr bool kAsStored = K == 1;
  static constexpr int kPanel = N::kLanes * N::kCols, kAcross = kPanel / kSide;
  static_assert(kPanel % kSide == 0 && kSide % N::kLanes == 0, "tiles are whole in a panel, vectors in a tile");

  BFloat16* query;   // [panel][piece][step][tile of queries]: pairs
  BFloat16* key;     // [piece][key][deep d]
  BFloat16* value;   // [piece][step][tile of columns]: pairs
  BFloat16* weight;  // [piece][row of the panel][deep tile]
  float* turned;     // [16 rows][deep tile]: weights on their way there
  float* block;      // [32 rows][32 columns]
  Apart<N> apart;
  int deep_d, deep_tile, wide;
  Rowed keys;                // the first `lying` of them, as they lie
  int lying;                 // the others are packed
  bool all_fit, all_finite;  // of the tile's values; the second, if not the first

  Unit(Cutter& cut, int tile, int d, int dv)
      : apart(cut, tile), deep_d(up_to(d, kDeep)), deep_tile(up_to(tile, kDeep)), wide(up_to(dv, kSide)) {
    cut(query, size_t(K) * Apart<N>::kRows * deep_d);
    cut(key, size_t(K) * up_to(tile, kSide) * deep_d);
    cut(value, size_t(K) * deep_tile * wide);
    cut(weight, size_t(W) * kPanel * deep_tile);
    cut(turned, size_t(kSide) * deep_tile);
    cut(block, size_t(4) * kSide * kSide);
  }

  // From [d][lane] of each panel.
  void take_queries(const Problem& p, int rows, const float* from) {
    const ptrdiff_t piece = ptrdiff_t(kPanel) * deep_d;
    for (int first = 0; first < rows; first += kPanel) {
      for (int l = 0; l < kPanel; l += kSide) {
        bool* const fits = apart.query_fits + first + l;
        for (int i = 0; i < kSide; ++i) fits[i] = fits_scale(p);
        for (int c = 0; c < deep_d; c += 2) {
          Sixteen x, y;
          const float* const lanes = from + ptrdiff_t(first) * p.d + ptrdiff_t(c) * kPanel + l;
          take(lanes, c < p.d ? kSide : 0, x);
          take(lanes + kPanel, c + 1 < p.d ? kSide : 0, y);
#pragma GCC unroll 1
          for (int i = 0; i < kSide; ++i) fits[i] &= fits_scores(x[i]) & fits_scores(y[i]);
          const int tile = c / kDeep * kAcross + l / kSide;
          split_pairs<K>(x, y, query + K * first * ptrdiff_t(deep_d) + tile * kTileSize + c % kDeep / 2 * kDeep, piece);
        }
      }
    }
  }

  template <class Row>
  void take_keys(const Rows<Row>& from, int count, int d) {
    const ptrdiff_t piece = ptrdiff_t(up_to(count, kSide)) * deep_d;
    lying = 0;
    keys = {key, deep_d, piece};
    if constexpr (sizeof(Row) == sizeof(BFloat16) && kAsStored) {
      if (d == deep_d) {
        lying = count / kSide * kSide;
        keys = {from.data, from.row, 0};
      }
    }
    for (int j = 0; j < up_to(count, kSide); ++j) {
      int over = 0;
      for (int c = 0; c < deep_d; c += kSide) {
        Sixteen x;
        take(from.at(j < count ? j : 0) + c, j < count ? d - c : 0, x);
#pragma GCC unroll 1
        for (int i = 0; i < kSide; ++i) over += !fits_scores(x[i]);
        if (j >= lying) split<K>(x, key + ptrdiff_t(j) * deep_d + c, piece);
      }
      if (j < count) apart.key_fits[j] = over == 0;
    }
  }

  template <class Row>
  void take_values(const Rows<Row>& from, int count, int dv, bool, float* others) {
    const ptrdiff_t piece = ptrdiff_t(deep_tile) * wide;
    int over = 0;
    for (int j = 0; j < up_to(count, kDeep); j += 2) {
      for (int c = 0; c < wide; c += kSide) {
        Sixteen x, y;
        take_fitting(from, j, count, c, dv, x, over);
        take_fitting(from, j + 1, count, c, dv, y, over);
        const int tile = j / kDeep * (wide / kSide) + c / kSide;
        split_pairs<K>(x, y, value + ptrdiff_t(tile) * kTileSize + j % kDeep / 2 * kDeep, piece);
      }
    }
    all_fit = over == 0;
    if (!all_fit) all_finite = !set_values_apart<N>(from, count, dv, others);
  }
  template <class Row>
  static void take_fitting(const Rows<Row>& from, int j, int count, int c, int dv, Sixteen& x, int& over) {
    take(from.at(j < count ? j : 0) + c, j < count ? dv - c : 0, x);
#pragma GCC unroll 1
    for (int i = 0; i < kSide; ++i) {
      over += !fits_product(x[i]);
      x[i] = fits_product(x[i]) ? x[i] : 0.0f;
    }
  }

  Rowed keys_at(int j) const {
    return j < lying ? Rowed{keys.data + j * keys.row, keys.row, keys.piece}
                     : Rowed{key + ptrdiff_t(j) * deep_d, deep_d, keys.piece};
  }

  // scores[key][lane] for keys [begin, end), and some beside them up to whole tiles.
  template <int C, class Row>
  void score(const Panel& panel, const Rows<Row>& from, int begin, int end, const float* queries, const float* scale,
             float* scores_, const Ahead&) {
    const int across = up_to(C * N::kLanes, kSide) / kSide, first = begin / kSide * kSide;
    const RightTiles right{query + ptrdiff_t(K) * panel.first * deep_d, kAcross, ptrdiff_t(kPanel) * deep_d};
    for (int j = first; j < end; j += 2 * kSide) {
      const int rows = j + kSide < end ? 2 : 1;
      for (int q = 0; q < across; q += 2) {
        const RightTiles of{right.data + q * kTileSize, right.across, right.piece};
        tile_product<K, K>(keys_at(j), rows > 1 ? keys_at(j + kSide) : Rowed{}, rows, across - q, of, 0, deep_d / kDeep,
                           scores_ + ptrdiff_t(j) * kPanel + q * kSide, kPanel);
      }
    }
    const typename N::V by = N::load(scale);
    for (int j = begin; j < end; ++j) {
      for (int c = 0; c < C; ++c) {
        float* const at = scores_ + ptrdiff_t(j) * kPanel + c * N::kLanes;
        N::store(at, N::mul(N::load(at), by));
      }
    }
    apart.template score<C>(panel, from, begin, end, queries, scale, scores_);
  }

  // Weights of keys [begin, end) as rows of queries; in the steps that these touch, the others are zero.
  void take_weights(const float* weights, int begin, int end, int rows) {
    const int first = begin / kDeep * kDeep, last = up_to(end, kDeep);
    for (int q = 0; q < rows; q += kSide) {
      for (int j = first; j < last; j += 4) {
        for (int l = 0; l < kSide; l += N::kLanes) {
          typename N::V x[4];
          for (int i = 0; i < 4; ++i) {
            x[i] = begin <= j + i && j + i < end ? N::load(weights + ptrdiff_t(j + i) * kPanel + q + l) : N::set(0);
          }
          N::store_columns(x, turned + ptrdiff_t(l) * deep_tile + j, deep_tile);
        }
      }
      for (int r = 0; r < kSide; ++r) {
        BFloat16* const to = weight + ptrdiff_t(q + r) * deep_tile;
        const float* const row = turned + ptrdiff_t(r) * deep_tile;
        for (int j = first; j < last; j += kSide) {
          Sixteen x;
          take(row + j, kSide, x);
          split<W>(x, to + j, ptrdiff_t(kPanel) * deep_tile);
        }
      }
    }
  }

  // out = shrink * out + weights . v, as accumulate.inl has it.
  template <class Row>
  void weigh_values(const Panel& panel, const Rows<Row>&, int, const float* weights, int begin, int end,
                    const float* shrink, float* out, float*, const Ahead&) {
    const int rows = panel.count, width = padded<N>(panel.p.dv);
    take_weights(weights, begin, end, rows);
    const int tiles = up_to(rows, kSide) / kSide, across = wide / kSide;
    const auto rowed = [&](int q) {
      return Rowed{weight + ptrdiff_t(q) * kSide * deep_tile, deep_tile, ptrdiff_t(kPanel) * deep_tile};
    };
    for (int q = 0; q < tiles; q += 2) {
      for (int c = 0; c < across; c += 2) {
        const RightTiles of{value + ptrdiff_t(c) * kTileSize, across, ptrdiff_t(deep_tile) * wide};
        tile_product<W, K>(rowed(q), rowed(q + 1), tiles - q, across - c, of, begin / kDeep, up_to(end, kDeep) / kDeep,
                           block, 2 * kSide);
        const int last = rows - q * kSide < 2 * kSide ? rows - q * kSide : 2 * kSide;
        const int cols = width - c * kSide < 2 * kSide ? width - c * kSide : 2 * kSide;
        for (int r = 0; r < last; ++r) {
          float* const to = out + ptrdiff_t(q * kSide + r) * width + c * kSide;
          const typename N::V by = N::set(shrink[q * kSide + r]);
          for (int e = 0; e < cols; e += N::kLanes) {
            N::store(to + e, N::fma(N::load(to + e), by, N::load(block + r * 2 * kSide + e)));
          }
        }
      }
    }
  }
};
