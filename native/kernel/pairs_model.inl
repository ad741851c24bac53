// SPDX-License-Identifier: Apache-2.0
// Products of pairs of bfloat16 in plain C++, beside the vectors of a target that has none: the interface of pairs.inl,
// and the bits of its `fma`.

// vdpbf16ps as its maker's manual describes it and 12,800,000 results of a machine were: the second elements' product
// is added by FMA, then the first ones', rounded to nearest. Subnormals count as zero wherever they go in or come out.
struct Paired : F32 {
  struct Pairs {
    Pair lane[kLanes];
  };
  static constexpr int kTurn = 4;
  static constexpr bool kAcross = false;
  using F32::fma, F32::load, F32::load_columns, F32::set, F32::store;

  static Pairs load(const Pair* p) {
    Pairs x;
    memcpy(x.lane, p, sizeof x.lane);
    return x;
  }
  static void store(Pair* p, const Pairs& x) { memcpy(p, x.lane, sizeof x.lane); }
  static Pairs set(Pair x) {
    Pairs all;
    for (Pair& lane : all.lane) lane = x;
    return all;
  }
  // Two steps of a chain.
  static V fma(const Pairs& a, const Pairs& b, V c) {
    T sum[kLanes];
    store(sum, c);
    for (int l = 0; l < kLanes; ++l) {
      sum[l] = step(a.lane[l].second, b.lane[l].second, flush(sum[l]));
      sum[l] = step(a.lane[l].first, b.lane[l].first, sum[l]);
    }
    return load(sum);
  }
  static void load_columns(const Pair* p, ptrdiff_t row, Pairs (&x)[4]) {
    for (int l = 0; l < kLanes; ++l) {
      for (int i = 0; i < 4; ++i) x[i].lane[l] = p[l * row + i];
    }
  }
  // The nearest to each, ties to even.
  static Pairs pair(V first, V second) {
    T x[2][kLanes];
    store(x[0], first);
    store(x[1], second);
    Pairs both;
    for (int l = 0; l < kLanes; ++l) {
      narrow(x[0][l], both.lane[l].first);
      narrow(x[1][l], both.lane[l].second);
    }
    return both;
  }
  // Of two rows.
  static Pairs pair(const BFloat16* first, const BFloat16* second) {
    Pairs both;
    for (int l = 0; l < kLanes; ++l) both.lane[l] = {first[l], second[l]};
    return both;
  }

  // The first so many elements of each, then zeros.
  static Pairs pair(const BFloat16* first, int firsts, const BFloat16* second, int seconds) {
    Pairs both{};
    for (int l = 0; l < kLanes && l < firsts; ++l) both.lane[l].first = first[l];
    for (int l = 0; l < kLanes && l < seconds; ++l) both.lane[l].second = second[l];
    return both;
  }

  // Whether all elements are of usual size: 2^-63 <= |x| < 2^65.
  class Usual {
   public:
    void add(const Pairs& x) {
      for (const Pair& lane : x.lane) all_ = all_ && usual(widen(lane.first)) && usual(widen(lane.second));
    }
    void add(const Usual& other) { all_ = all_ && other.all_; }
    bool all() const { return all_; }

   private:
    bool all_ = true;
    static bool usual(T x) { return 0x1p-63f <= __builtin_fabsf(x) && __builtin_fabsf(x) < 0x1p65f; }
  };

 private:
  static T flush(T x) {
    const uint32_t bits = bit_cast<uint32_t>(x);
    return bit_cast<T>(bits & 0x7f800000 ? bits : bits & 0x80000000);
  }
  static T step(BFloat16 a, BFloat16 b, T sum) { return flush(__builtin_fmaf(flush(widen(a)), flush(widen(b)), sum)); }
};
