// SPDX-License-Identifier: Apache-2.0
// Products of pairs of bfloat16 in plain C++, beside the vectors of a target that has none: the interface of pairs.inl,
// and the bits of its instruction.

// vdpbf16ps as its maker's manual describes it and 12,800,000 results of a machine were: the second elements' product
// is added by FMA, then the first ones', rounded to nearest. Subnormals count as zero wherever they go in or come out.
struct Paired : F32 {
  struct Pairs {
    Pair lane[kLanes];
  };
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
  // 2 kLanes elements of two rows.
  static void pair(const BFloat16* first, const BFloat16* second, Pairs (&x)[2]) {
    for (int i = 0; i < 2 * kLanes; ++i) x[i / kLanes].lane[i % kLanes] = {first[i], second[i]};
  }

  // The bits of the largest element and of the smallest that is not zero, whatever their signs; NaN is largest.
  class Sizes {
   public:
    void add(const Pairs& x) {
      for (const Pair& lane : x.lane) {
        add(lane.first);
        add(lane.second);
      }
    }
    bool at_most(BFloat16 x) const { return most_ <= x.bits; }
    bool at_least(BFloat16 x) const { return least_ >= x.bits; }

   private:
    int most_ = 0, least_ = 0x10000;
    void add(BFloat16 x) {
      const int size = x.bits & 0x7fff;
      most_ = size > most_ ? size : most_;
      least_ = size != 0 && size < least_ ? size : least_;
    }
  };

 private:
  static T flush(T x) {
    const uint32_t bits = bit_cast<uint32_t>(x);
    return bit_cast<T>(bits & 0x7f800000 ? bits : bits & 0x80000000);
  }
  static T step(BFloat16 a, BFloat16 b, T sum) {
    return flush(__builtin_fmaf(flush(widen(a)), flush(widen(b)), sum));
  }
};
