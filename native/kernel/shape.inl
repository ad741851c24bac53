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

// Element (head, query, key) of the bias.
template <class T, class B>
inline T bias_at(const Bias& bias, int64_t head, int64_t query, int64_t key) {
  const char* row = bias.rows.data + bias.rows.head[head] + query * bias.rows.row;
  return static_cast<T>(widen(load_any<B>(row + key * bias.rows.col)));
}

// Adds a bias to keys [begin, end) of a panel; returns whether one of its elements is -inf.
template <class N, class B>
bool add_bias_of(const Bias& bias, const Panel& panel, int64_t first, int begin, int end, typename N::T* scores) {
  typedef typename N::T T;
  bool drops = false;
  for (int r = 0; r < panel.count; ++r) {
    const char* from = bias.rows.data + bias.rows.head[panel.head(r)] + panel.query(r) * bias.rows.row;
    from += (first + begin) * bias.rows.col;
    for (int j = begin; j < end; ++j, from += bias.rows.col) {
      const T b = static_cast<T>(widen(load_any<B>(from)));
      scores[ptrdiff_t(j) * Scratch<N>::kPanel + r] += b;
      drops = drops || b == -__builtin_inff();
    }
  }
  return drops;
}

// Writes `with` over the pairs that a bias of -inf drops.
template <class N, class B>
void drop_by_bias_of(const Bias& bias, const Panel& panel, int64_t first, int begin, int end, typename N::T with,
                     typename N::T* tile) {
  typedef typename N::T T;
  for (int r = 0; r < panel.count; ++r) {
    for (int j = begin; j < end; ++j) {
      if (bias_at<T, B>(bias, panel.head(r), panel.query(r), first + j) == -__builtin_inff()) {
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
    with_dtype(bias.dtype, [&](auto b) {
      seen = seen && bias_at<T, decltype(b)>(bias, panel.head(r), panel.query(r), key) != -__builtin_inff();
    });
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
