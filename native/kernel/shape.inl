// SPDX-License-Identifier: Apache-2.0
// The score map between q . k and the mask: softcap, then bias.

template <class N, int C>
inline void cap(int begin, int end, typename N::T softcap, typename N::T* scores) {
  typedef typename N::V V;
  const V c = N::set(softcap);
  for (int j = begin; j < end; ++j) {
    for (int i = 0; i < C; ++i) {
      typename N::T* const at = scores + ptrdiff_t(j) * Scratch<N>::kPanel + i * N::kLanes;
      N::store(at, N::mul(c, tanh<N>(N::div(N::load(at), c))));
    }
  }
}

// Element (row of the panel, key) of the bias.
template <class T, class B>
inline T bias_at(const Bias& bias, const Panel& panel, int r, int64_t key) {
  return static_cast<T>(widen(load_any<B>(row_of(bias.rows, panel, r) + key * bias.rows.col)));
}

// Whether vectors of N can be loaded from B.
template <class N, class B>
constexpr bool loads() {
  return sizeof(B) == sizeof(typename N::T) || (sizeof(typename N::T) == 4 && sizeof(B) == 2);
}

// Adds a bias to the lanes from `begin_lane` on, for four keys at a time while there are as many; returns the key
// where it stopped. `low` collects the smallest element, with its sign turned.
template <class N, class B>
inline int add_columns(const Bias& bias, const Panel& panel, int lane, int64_t first, int begin, int end,
                       typename N::V& low, typename N::T* scores) {
  typedef typename N::V V;
  if constexpr (loads<N, B>()) {
    const V lowest = N::set(-__builtin_inff());
    ptrdiff_t row = 0;
    const B* const from = even_rows<B>(bias.rows, panel, lane, N::kLanes, row);
    for (; from && begin + 4 <= end; begin += 4) {
      V column[4];
      N::load_columns(from + first + begin, row, column);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        typename N::T* const at = scores + ptrdiff_t(begin + i) * Scratch<N>::kPanel + lane;
        // A bias of -inf, or NaN, stands whatever the score was.
        N::store(at, N::select_less(lowest, column[i], N::add(N::load(at), column[i]), column[i]));
        low = N::max(N::sub(N::set(0), column[i]), low);
      }
    }
  }
  return begin;
}

// Adds a bias to keys [begin, end) of a panel; returns whether one of its elements is -inf.
template <class N, class B>
bool add_bias_of(const Bias& bias, const Panel& panel, int64_t first, int begin, int end, typename N::T* scores) {
  typedef typename N::T T;
  const T lowest = -__builtin_inff();
  typename N::V low = N::set(lowest);
  bool drops = false;
  for (int lane = 0; lane < panel.count; lane += N::kLanes) {
    const int rest = add_columns<N, B>(bias, panel, lane, first, begin, end, low, scores);
    for (int r = lane; r < lane + N::kLanes && r < panel.count; ++r) {
      for (int j = rest; j < end; ++j) {
        const T b = bias_at<T, B>(bias, panel, r, first + j);
        T& score = scores[ptrdiff_t(j) * Scratch<N>::kPanel + r];
        score = lowest < b ? score + b : b;
        drops = drops || b == lowest;
      }
    }
  }
  T lanes[N::kLanes];
  N::store(lanes, low);
  for (T lane : lanes) drops = drops || lane == -lowest;
  return drops;
}

// Writes `with` over the pairs that a bias of -inf drops.
template <class N, class B>
void drop_by_bias_of(const Bias& bias, const Panel& panel, int64_t first, int begin, int end, typename N::T with,
                     typename N::T* tile) {
  typedef typename N::T T;
  for (int r = 0; r < panel.count; ++r) {
    for (int j = begin; j < end; ++j) {
      if (bias_at<T, B>(bias, panel, r, first + j) == -__builtin_inff()) {
        tile[ptrdiff_t(j) * Scratch<N>::kPanel + r] = with;
      }
    }
  }
}

// f(an element of that type).
template <class F>
inline auto with_dtype(DType dtype, F f) {
  switch (dtype) {
    case DType::kFloat64:
      return f(double{});
    case DType::kFloat16:
      return f(Half{});
    case DType::kBFloat16:
      return f(BFloat16{});
    default:
      return f(float{});
  }
}

// f(bias) for each bias.
template <class F>
inline void each_bias(const Problem& p, F f) {
  for (int n = 0; n < p.bias_count; ++n) f(p.biases[n]);
}

// Adds every bias; returns whether one of the elements is -inf.
template <class N>
bool add_biases(const Panel& panel, int64_t first, int begin, int end, typename N::T* scores) {
  bool drops = false;
  each_bias(panel.p, [&](const Bias& bias) {
    with_dtype(bias.dtype,
               [&](auto b) { drops = add_bias_of<N, decltype(b)>(bias, panel, first, begin, end, scores) || drops; });
  });
  return drops;
}

template <class N>
void drop_by_biases(const Panel& panel, int64_t first, int begin, int end, typename N::T with, typename N::T* tile) {
  each_bias(panel.p, [&](const Bias& bias) {
    with_dtype(bias.dtype,
               [&](auto b) { drop_by_bias_of<N, decltype(b)>(bias, panel, first, begin, end, with, tile); });
  });
}

// Whether a row sees a key: neither mask nor bias drops it.
template <class T>
inline bool sees(const Panel& panel, int r, int64_t key) {
  bool seen = keeps(panel.p.mask, panel.head(r), panel.query(r), key);
  each_bias(panel.p, [&](const Bias& bias) {
    with_dtype(bias.dtype,
               [&](auto b) { seen = seen && bias_at<T, decltype(b)>(bias, panel, r, key) != -__builtin_inff(); });
  });
  return seen;
}

// Whether a row sees one of the keys [begin, end) of the tile at `first`.
template <class T>
inline bool sees_one(const Panel& panel, int r, int64_t first, int begin, int end) {
  for (int j = begin; j < end; ++j) {
    if (sees<T>(panel, r, first + j)) return true;
  }
  return false;
}
