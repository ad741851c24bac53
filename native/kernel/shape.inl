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

// Adds the bias to keys [begin, end) of a panel; returns whether one of its elements is -inf.
template <class N, class B>
bool add_bias_of(const Panel& panel, int64_t first, int begin, int end, typename N::T* scores) {
  typedef typename N::T T;
  const Bias& bias = panel.p.bias;
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

// Writes `with` over the pairs that a bias of -inf drops. kept[r] becomes whether row r keeps a key that neither
// mask nor bias drops.
template <class N, class B>
void drop_by_bias_of(const Panel& panel, int64_t first, int begin, int end, typename N::T with, bool* kept,
                     typename N::T* tile) {
  typedef typename N::T T;
  for (int r = 0; r < panel.count; ++r) {
    kept[r] = false;
    for (int j = begin; j < end; ++j) {
      if (bias_at<T, B>(panel.p.bias, panel.head(r), panel.query(r), first + j) == -__builtin_inff()) {
        tile[ptrdiff_t(j) * Scratch<N>::kPanel + r] = with;
      } else {
        kept[r] = kept[r] || keeps(panel.p.mask, panel.head(r), panel.query(r), first + j);
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

template <class N>
bool add_bias(const Panel& panel, int64_t first, int begin, int end, typename N::T* scores) {
  return with_dtype(panel.p.bias.dtype,
                    [&](auto b) { return add_bias_of<N, decltype(b)>(panel, first, begin, end, scores); });
}

template <class N>
void drop_by_bias(const Panel& panel, int64_t first, int begin, int end, typename N::T with, bool* kept,
                  typename N::T* tile) {
  with_dtype(panel.p.bias.dtype,
             [&](auto b) { drop_by_bias_of<N, decltype(b)>(panel, first, begin, end, with, kept, tile); });
}

// Whether a row sees a key: neither mask nor bias drops it.
template <class T>
inline bool sees(const Panel& panel, int r, int64_t key) {
  if (!keeps(panel.p.mask, panel.head(r), panel.query(r), key)) return false;
  if (!panel.p.bias.rows.data) return true;
  return with_dtype(panel.p.bias.dtype, [&](auto b) {
    return bias_at<T, decltype(b)>(panel.p.bias, panel.head(r), panel.query(r), key) != -__builtin_inff();
  });
}
