// SPDX-License-Identifier: Apache-2.0
// The bodies of RowKernels over a `Simd` class; included once per instruction set, inside an
// anonymous namespace.
//
// No std:: templates and no non-inlined shared functions here: the linker may keep the copy that
// was compiled for the newest instruction set and hand it to an older processor.
//
// Numerics: sums run in 4 independent vector accumulators (latency), then lanes are added in a
// fixed order. NaN: `Simd::max(a, b)` returns b where either is NaN, so max(x, acc) drops NaN and
// max(floor, y) keeps it.

using F = Simd::Float;
constexpr int kWidth = Simd::kWidth;
constexpr int kUnroll = 4;
constexpr int kBlock = kWidth * kUnroll;
constexpr int kAhead = 4096;  // bytes
static_assert(kMaxGroup % kBlock == 0 && kChunk % kBlock == 0,
              "groups and chunks are whole blocks");

inline float negative_infinity() { return -__builtin_inff(); }

// exp(y) for y <= 0; 0 below -87.3, where float32 would leave its normal range. NaN stays NaN.
// 2^(n - g) with n the nearest integer to y log2(e) and g = n - y log2(e) in one fused step, then a
// polynomial of degree 6 for 2^-g, |g| <= 1/2: error 2 ulp, and 1.4e-8 |y| from the rounded
// constant (without a fused step, as in the plain kernels, 6e-8 |y|).
inline F exp_nonpositive(F y) {
  const F floor = Simd::set(-87.3f), log2_e = Simd::set(1.44269504088896341f);
  const typename Simd::Mask dead = Simd::less(y, floor);
  y = Simd::max(floor, y);
  const F n = Simd::round(Simd::mul(y, log2_e));
  const F g = Simd::negative_multiply_add(y, log2_e, n);
  F poly = Simd::set(1.5403530e-4f);
  poly = Simd::multiply_add(poly, g, Simd::set(-1.3333558e-3f));
  poly = Simd::multiply_add(poly, g, Simd::set(9.6181291e-3f));
  poly = Simd::multiply_add(poly, g, Simd::set(-5.5504109e-2f));
  poly = Simd::multiply_add(poly, g, Simd::set(2.4022651e-1f));
  poly = Simd::multiply_add(poly, g, Simd::set(-6.9314718e-1f));
  poly = Simd::multiply_add(poly, g, Simd::set(1.0f));
  return Simd::zero_where(dead, Simd::scale_by_power_of_two(poly, n));
}

// kWidth values of a chunk from id `at` on; ids at or beyond n, and masked ids, read as -inf.
template <class T>
inline F load_logits(const T* logits, int at, int n, const uint16_t* mask) {
  F x;
  if (at + kWidth <= n) {
    x = Simd::load(logits + at);
  } else if (at >= n) {
    return Simd::set(negative_infinity());
  } else {
    T padded[kWidth];
    for (int lane = 0; lane < kWidth; ++lane) {
      padded[lane] = at + lane < n ? logits[at + lane] : T::negative_infinity();
    }
    x = Simd::load(padded);
  }
  if (mask) x = Simd::keep_where_bits(mask, at, x, negative_infinity());
  return x;
}

// The same where the whole vector lies in the chunk.
template <class T>
inline F load_full(const T* logits, int at, const uint16_t* mask) {
  const F x = Simd::load(logits + at);
  return mask ? Simd::keep_where_bits(mask, at, x, negative_infinity()) : x;
}

// Stores lanes below n only.
inline void store_floats(float* out, int at, int n, F x) {
  if (at + kWidth <= n) {
    Simd::store(out + at, x);
    return;
  }
  float lanes[kWidth];
  Simd::store(lanes, x);
  for (int lane = 0; at + lane < n; ++lane) out[at + lane] = lanes[lane];
}

inline F load_floats(const float* x, int at, int n) {
  if (at + kWidth <= n) return Simd::load_float(x + at);
  float lanes[kWidth];
  for (int lane = 0; lane < kWidth; ++lane) lanes[lane] = at + lane < n ? x[at + lane] : 0.0f;
  return Simd::load_float(lanes);
}

// 1 in the first n lanes, 0 in the others.
inline F first_lanes(int n) {
  float lanes[kWidth];
  for (int lane = 0; lane < kWidth; ++lane) lanes[lane] = lane < n ? 1.0f : 0.0f;
  return Simd::load_float(lanes);
}

inline F add_all(const F (&acc)[kUnroll]) {
  return Simd::add(Simd::add(acc[0], acc[1]), Simd::add(acc[2], acc[3]));
}

template <class T>
inline float chunk_max(const T* logits, int n, const uint16_t* mask) {
  F acc[kUnroll];
  for (F& a : acc) a = Simd::set(negative_infinity());
  int i = 0;
  for (; i + kBlock <= n; i += kBlock) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u)
      acc[u] = Simd::max(load_full(logits, i + u * kWidth, mask), acc[u]);
  }
  for (; i < n; i += kWidth) acc[0] = Simd::max(load_logits(logits, i, n, mask), acc[0]);
  return Simd::reduce_max(Simd::max(Simd::max(acc[0], acc[1]), Simd::max(acc[2], acc[3])));
}

// Is any logit NaN? Asked only of chunks without a finite maximum, whose sum can't tell.
template <class T>
inline bool any_nan(const T* logits, int n, const uint16_t* mask) {
  for (int i = 0; i < n; i += kWidth) {
    const F x = load_logits(logits, i, n, mask);
    if (Simd::any(Simd::is_nan(x))) return true;
  }
  return false;
}

template <class T, bool kEntropy>
inline void chunk_sum_impl(const T* logits, int n, const uint16_t* mask, float inv_temperature,
                           ChunkSum* out, float* weighted_sum) {
  const float max_logit = chunk_max(logits, n, mask);
  out->max_logit = max_logit;
  if (kEntropy) *weighted_sum = 0.0f;
  if (max_logit == negative_infinity()) {
    out->sum = any_nan(logits, n, mask) ? __builtin_nanf("") : 0.0f;
    return;
  }
  const F max = Simd::set(max_logit), scale = Simd::set(inv_temperature), zero = Simd::set(0.0f);
  F acc[kUnroll], weighted[kUnroll];
  for (int u = 0; u < kUnroll; ++u) acc[u] = weighted[u] = zero;
  const auto add = [&](F x, int u) __attribute__((always_inline)) {
    const F y = Simd::mul(Simd::sub(x, max), scale);
    const F weight = exp_nonpositive(y);
    acc[u] = Simd::add(acc[u], weight);
    // y is -inf where weight is 0: the product would be NaN.
    if (kEntropy)
      weighted[u] = Simd::multiply_add(weight, Simd::max(Simd::set(-128.0f), y), weighted[u]);
  };
  int i = 0;
  for (; i + kBlock <= n; i += kBlock) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) add(load_full(logits, i + u * kWidth, mask), u);
  }
  for (int u = 0; i < n; i += kWidth, ++u) add(load_logits(logits, i, n, mask), u);
  out->sum = Simd::reduce_add(add_all(acc));
  if (kEntropy) *weighted_sum = Simd::reduce_add(add_all(weighted));
}

template <class T>
void chunk_sum(const void* logits, int n, const uint16_t* mask, float inv_temperature,
               ChunkSum* out) {
  chunk_sum_impl<T, false>(static_cast<const T*>(logits), n, mask, inv_temperature, out, nullptr);
}

template <class T>
void chunk_sum_entropy(const void* logits, int n, const uint16_t* mask, float inv_temperature,
                       ChunkSum* out, float* weighted_sum) {
  chunk_sum_impl<T, true>(static_cast<const T*>(logits), n, mask, inv_temperature, out,
                          weighted_sum);
}

template <class T>
void group_max(const void* logits, int n, const uint16_t* mask, float* out) {
  for (int group = 0; group * kMaxGroup < n; ++group) {
    const int begin = group * kMaxGroup;
    const int size = n - begin < kMaxGroup ? n - begin : kMaxGroup;
    out[group] = chunk_max(static_cast<const T*>(logits) + begin, size,
                           mask ? mask + begin / kMaskBits : nullptr);
  }
}

template <class T>
int filter_at_least(const void* logits, int n, const uint16_t* mask, float threshold, float* out,
                    int capacity) {
  const F limit = Simd::set(threshold);
  int count = 0;
  for (int i = 0; i < n; i += kWidth) {
    const F x = load_logits(static_cast<const T*>(logits), i, n, mask);
    const typename Simd::Mask kept = Simd::greater_equal(x, limit);
    if (!Simd::any(kept)) continue;
    // Room for a whole vector is asked for, since the compressed store may write one.
    if (count + kWidth > capacity) return -1;
    count += Simd::compress_store(out + count, kept, x);
  }
  return count;
}

template <class T>
float law_probs(const void* logits, int n, const uint16_t* mask, const RowStats& stats,
                float* probs) {
  const F max = Simd::set(stats.max_logit), scale = Simd::set(stats.inv_temperature);
  const F log_normalizer = Simd::set(stats.log_normalizer), cutoff = Simd::set(stats.cutoff);
  F acc[kUnroll];
  for (F& a : acc) a = Simd::set(0.0f);
  const auto prob_of = [&](F x) __attribute__((always_inline)) {
    const F y = Simd::sub(Simd::mul(Simd::sub(x, max), scale), log_normalizer);
    return Simd::zero_where(Simd::less(x, cutoff), exp_nonpositive(y));
  };
  int i = 0;
  for (; i + kBlock <= n; i += kBlock) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) {
      const int at = i + u * kWidth;
      const F prob = prob_of(load_full(static_cast<const T*>(logits), at, mask));
      acc[u] = Simd::add(acc[u], prob);
      Simd::store(probs + at, prob);
    }
  }
  for (int u = 0; i < n; i += kWidth, ++u) {
    const F prob = prob_of(load_logits(static_cast<const T*>(logits), i, n, mask));
    acc[u] = Simd::add(acc[u], prob);
    store_floats(probs, i, n, prob);
  }
  return Simd::reduce_add(add_all(acc));
}

// The shared tail of both residuals: max(0, scale * prob - draft_prob), NaN kept.
inline F residual_weight(F prob, F scale, F draft_prob) {
  return Simd::max(Simd::set(0.0f), Simd::sub(Simd::mul(scale, prob), draft_prob));
}

inline F law_of_logits(F x, const RowStats& stats) {
  const F y = Simd::sub(
      Simd::mul(Simd::sub(x, Simd::set(stats.max_logit)), Simd::set(stats.inv_temperature)),
      Simd::set(stats.log_normalizer));
  return Simd::zero_where(Simd::less(x, Simd::set(stats.cutoff)), exp_nonpositive(y));
}

// A vector of a law's probabilities, mixed. kInside: the whole vector lies in the chunk.
template <bool kInside = false>
inline F mixed(F prob, int i, int n, F keep, F share, const MixTerms& terms) {
  const auto load = [=](const float* x) __attribute__((always_inline)) {
    return kInside ? Simd::load_float(x + i) : load_floats(x, i, n);
  };
  if (terms.leak) keep = Simd::sub(keep, load(terms.leak));
  prob = Simd::mul(keep, prob);
  if (terms.prior) prob = Simd::multiply_add(share, load(terms.prior), prob);
  // All that a token has may be taken away: rounding must not leave less than nothing. NaN stays.
  if (terms.extra) prob = Simd::max(Simd::set(0.0f), Simd::add(prob, load(terms.extra)));
  return prob;
}

template <class T, bool kMix>
inline float subtract_law_impl(float* probs, int n, float scale, const void* draft,
                               int64_t draft_vocab_size, const RowStats& stats, const int32_t* ids,
                               const MixTerms& all_terms) {
  const T* row = static_cast<const T*>(draft);
  const MixTerms terms = all_terms;  // a copy: the stores below might change the caller's
  const F scales = Simd::set(scale), keep = Simd::set(terms.keep);
  const F share = Simd::set(terms.prior_share);
  // Gathered in a loop of its own, which keeps more of the scattered loads in flight.
  T gathered[kChunk];
  gather_logits(row, draft_vocab_size, ids, n, gathered);
  F total = Simd::set(0.0f);
  for (int i = 0; i < n; i += kWidth) {
    // -inf - max is -inf, and a law without truncation has cutoff -inf: exp gives 0 there.
    F prob = law_of_logits(load_logits(gathered, i, n, nullptr), stats);
    if (kMix) prob = mixed(prob, i, n, keep, share, terms);
    const F weight = residual_weight(load_floats(probs, i, n), scales, prob);
    total = Simd::add(total, weight);
    store_floats(probs, i, n, weight);
  }
  return Simd::reduce_add(total);
}

template <class T>
float subtract_law(float* probs, int n, float scale, const void* draft, int64_t draft_vocab_size,
                   const RowStats& stats, const int32_t* ids) {
  return subtract_law_impl<T, false>(probs, n, scale, draft, draft_vocab_size, stats, ids, {});
}

template <class T>
float subtract_mixed_law(float* probs, int n, float scale, const void* draft,
                         int64_t draft_vocab_size, const RowStats& stats, const int32_t* ids,
                         const MixTerms& terms) {
  return subtract_law_impl<T, true>(probs, n, scale, draft, draft_vocab_size, stats, ids, terms);
}

template <class T>
float law_probs_of_ids(const void* logits, int64_t vocab_size, const int32_t* ids, int n,
                       const RowStats& stats, float* probs) {
  T gathered[kChunk];
  gather_logits(static_cast<const T*>(logits), vocab_size, ids, n, gathered);
  F total = Simd::set(0.0f);
  for (int i = 0; i < n; i += kWidth) {
    const F prob = law_of_logits(load_logits(gathered, i, n, nullptr), stats);
    total = Simd::add(total, prob);
    store_floats(probs, i, n, prob);
  }
  return Simd::reduce_add(total);
}

void mix(float* probs, int n, const MixTerms& terms) {
  const F keep = Simd::set(terms.keep), share = Simd::set(terms.prior_share);
  for (int i = 0; i < n; i += kWidth) {
    store_floats(probs, i, n, mixed(load_floats(probs, i, n), i, n, keep, share, terms));
  }
}

float subtract_probs(float* probs, int n, float scale, const float* draft) {
  const F scales = Simd::set(scale);
  F acc[kUnroll];
  for (F& a : acc) a = Simd::set(0.0f);
  int i = 0;
  for (; i + kBlock <= n; i += kBlock) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) {
      const int at = i + u * kWidth;
      const F weight =
          residual_weight(Simd::load_float(probs + at), scales, Simd::load_float(draft + at));
      acc[u] = Simd::add(acc[u], weight);
      Simd::store(probs + at, weight);
    }
  }
  for (int u = 0; i < n; i += kWidth, ++u) {
    const F weight = residual_weight(load_floats(probs, i, n), scales, load_floats(draft, i, n));
    acc[u] = Simd::add(acc[u], weight);
    store_floats(probs, i, n, weight);
  }
  return Simd::reduce_add(add_all(acc));
}

float dot(const float* x, const float* y, int n) {
  F acc[kUnroll];
  for (F& a : acc) a = Simd::set(0.0f);
  for (int i = 0; i < n; i += kBlock) {
    for (int u = 0; u < kUnroll && i + u * kWidth < n; ++u) {
      const int at = i + u * kWidth;
      acc[u] = Simd::multiply_add(load_floats(x, at, n), load_floats(y, at, n), acc[u]);
    }
  }
  return Simd::reduce_add(add_all(acc));
}

template <class T>
float subtract_aligned_law(float* probs, int n, float scale, const void* draft,
                           const RowStats& stats) {
  const T* row = static_cast<const T*>(draft);
  const F scales = Simd::set(scale);
  F acc[kUnroll];
  for (F& a : acc) a = Simd::set(0.0f);
  int i = 0;
  for (; i + kBlock <= n; i += kBlock) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) {
      const int at = i + u * kWidth;
      const F weight = residual_weight(Simd::load_float(probs + at), scales,
                                       law_of_logits(load_full(row, at, nullptr), stats));
      acc[u] = Simd::add(acc[u], weight);
      Simd::store(probs + at, weight);
    }
  }
  for (int u = 0; i < n; i += kWidth, ++u) {
    const F x = load_logits(row, i, n, nullptr);
    const F weight = residual_weight(load_floats(probs, i, n), scales, law_of_logits(x, stats));
    acc[u] = Simd::add(acc[u], weight);
    store_floats(probs, i, n, weight);
  }
  return Simd::reduce_add(add_all(acc));
}

template <class Target, class Draft>
float residual_sum(const void* target, const RowStats& target_stats, float scale, const void* draft,
                   const RowStats& draft_stats, int n) {
  const Target* target_row = static_cast<const Target*>(target);
  const Draft* draft_row = static_cast<const Draft*>(draft);
  const F scales = Simd::set(scale);
  F acc[kUnroll];
  for (F& a : acc) a = Simd::set(0.0f);
  int i = 0;
  for (; i + kBlock <= n; i += kBlock) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) {
      const int at = i + u * kWidth;
      const F prob = law_of_logits(load_full(target_row, at, nullptr), target_stats);
      const F draft_prob = law_of_logits(load_full(draft_row, at, nullptr), draft_stats);
      acc[u] = Simd::add(acc[u], residual_weight(prob, scales, draft_prob));
    }
  }
  for (int u = 0; i < n; i += kWidth, ++u) {
    const F prob = law_of_logits(load_logits(target_row, i, n, nullptr), target_stats);
    const F draft_prob = law_of_logits(load_logits(draft_row, i, n, nullptr), draft_stats);
    acc[u] = Simd::add(acc[u], residual_weight(prob, scales, draft_prob));
  }
  return Simd::reduce_add(add_all(acc));
}

// kSpreadOnly: nothing but `extra` is mixed in.
template <class Target, class Draft, bool kSpreadOnly>
inline float residual_mix_sum_impl(const Target* target, const RowStats& target_stats, float scale,
                                   const Draft* draft, const RowStats& draft_stats,
                                   const MixTerms& terms, int n) {
  const F scales = Simd::set(scale), keep = Simd::set(terms.keep);
  const F share = Simd::set(terms.prior_share), zero = Simd::set(0.0f);
  F acc[kUnroll];
  for (F& a : acc) a = zero;
  int i = 0;
  for (; i + kBlock <= n; i += kBlock) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) {
      const int at = i + u * kWidth;
      // Between two chunks the caller is away, which the processor's own prefetcher does not
      // survive.
      __builtin_prefetch(reinterpret_cast<const char*>(target + at) + kAhead);
      __builtin_prefetch(reinterpret_cast<const char*>(draft + at) + kAhead);
      const F prob = law_of_logits(load_full(target, at, nullptr), target_stats);
      const F draft_prob = law_of_logits(load_full(draft, at, nullptr), draft_stats);
      const F moved =
          kSpreadOnly ? Simd::max(zero, Simd::add(draft_prob, Simd::load_float(terms.extra + at)))
                      : mixed<true>(draft_prob, at, n, keep, share, terms);
      acc[u] = Simd::add(acc[u], residual_weight(prob, scales, moved));
    }
  }
  for (int u = 0; i < n; i += kWidth, ++u) {
    const F prob = law_of_logits(load_logits(target, i, n, nullptr), target_stats);
    const F draft_prob = law_of_logits(load_logits(draft, i, n, nullptr), draft_stats);
    const F moved = mixed(draft_prob, i, n, keep, share, terms);
    acc[u] = Simd::add(acc[u], residual_weight(prob, scales, moved));
  }
  return Simd::reduce_add(add_all(acc));
}

template <class Target, class Draft>
float residual_mix_sum(const void* target, const RowStats& target_stats, float scale,
                       const void* draft, const RowStats& draft_stats, const MixTerms& terms,
                       int n) {
  const Target* target_row = static_cast<const Target*>(target);
  const Draft* draft_row = static_cast<const Draft*>(draft);
  if (terms.extra && !terms.leak && !terms.prior && terms.keep == 1.0f) {
    return residual_mix_sum_impl<Target, Draft, true>(target_row, target_stats, scale, draft_row,
                                                      draft_stats, terms, n);
  }
  return residual_mix_sum_impl<Target, Draft, false>(target_row, target_stats, scale, draft_row,
                                                     draft_stats, terms, n);
}

void exp_weights(const float* x, int n, float max_logit, float inv_temperature, float* weights) {
  const F max = Simd::set(max_logit), scale = Simd::set(inv_temperature);
  for (int i = 0; i < n; i += kWidth) {
    store_floats(weights, i, n,
                 exp_nonpositive(Simd::mul(Simd::sub(load_floats(x, i, n), max), scale)));
  }
}

float mass_at_least(const float* x, const float* weights, int n, float pivot, int* count) {
  const F limit = Simd::set(pivot);
  F acc = Simd::set(0.0f), lanes = acc;
  const F one = Simd::set(1.0f);
  for (int i = 0; i < n; i += kWidth) {
    // Beyond n load_floats gives 0, which may reach the pivot: such lanes get weight 0 and are not
    // counted.
    const typename Simd::Mask below = Simd::less(load_floats(x, i, n), limit);
    acc = Simd::add(acc, Simd::zero_where(below, load_floats(weights, i, n)));
    const F counted = i + kWidth <= n ? one : first_lanes(n - i);
    lanes = Simd::add(lanes, Simd::zero_where(below, counted));
  }
  *count = static_cast<int>(Simd::reduce_add(lanes));
  return Simd::reduce_add(acc);
}

int keep_side(float* x, float* weights, int n, float pivot, bool upper) {
  const F limit = Simd::set(pivot);
  int kept = 0;
  int i = 0;
  // In place: the write position never passes the read position.
  for (; i + kWidth <= n; i += kWidth) {
    const F value = Simd::load_float(x + i), weight = Simd::load_float(weights + i);
    const typename Simd::Mask mask =
        upper ? Simd::greater_equal(value, limit) : Simd::less(value, limit);
    Simd::compress_store(weights + kept, mask, weight);
    kept += Simd::compress_store(x + kept, mask, value);
  }
  for (; i < n; ++i) {
    if ((x[i] >= pivot) != upper) continue;
    const float value = x[i], weight = weights[i];
    x[kept] = value;
    weights[kept++] = weight;
  }
  return kept;
}

float sum_floats(const float* x, int n) {
  F acc[kUnroll];
  for (F& a : acc) a = Simd::set(0.0f);
  for (int i = 0; i < n; i += kBlock) {
    for (int u = 0; u < kUnroll && i + u * kWidth < n; ++u) {
      acc[u] = Simd::add(acc[u], load_floats(x, i + u * kWidth, n));
    }
  }
  return Simd::reduce_add(add_all(acc));
}

void add_weighted_rows(const float* rows, int width, const float* weights, int n, float* out) {
  int k = 0;
  for (; k + kBlock <= width; k += kBlock) {
    F acc[kUnroll];
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) acc[u] = Simd::load_float(out + k + u * kWidth);
    for (int i = 0; i < n; ++i) {
      if (weights[i] == 0.0f) continue;
      const F weight = Simd::set(weights[i]);
      const float* row = rows + static_cast<int64_t>(i) * width + k;
#pragma GCC unroll 4
      for (int u = 0; u < kUnroll; ++u) {
        acc[u] = Simd::multiply_add(weight, Simd::load_float(row + u * kWidth), acc[u]);
      }
    }
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) Simd::store(out + k + u * kWidth, acc[u]);
  }
  for (; k < width; k += kWidth) {
    F acc = load_floats(out, k, width);
    for (int i = 0; i < n; ++i) {
      if (weights[i] == 0.0f) continue;
      const float* row = rows + static_cast<int64_t>(i) * width;
      acc = Simd::multiply_add(Simd::set(weights[i]), load_floats(row, k, width), acc);
    }
    store_floats(out, k, width, acc);
  }
}

float low_rank_weights(const float* rows, int width, const float* x, float scale, int n,
                       float* out) {
  for (int i = 0; i < n; ++i) {
    const float* row = rows + static_cast<int64_t>(i) * width;
    F acc[kUnroll];
    for (F& a : acc) a = Simd::set(0.0f);
    int k = 0;
    for (; k + kBlock <= width; k += kBlock) {
#pragma GCC unroll 4
      for (int u = 0; u < kUnroll; ++u) {
        const int at = k + u * kWidth;
        acc[u] = Simd::multiply_add(Simd::load_float(row + at), Simd::load_float(x + at), acc[u]);
      }
    }
    for (int u = 0; k < width; k += kWidth, ++u) {
      acc[u] = Simd::multiply_add(load_floats(row, k, width), load_floats(x, k, width), acc[u]);
    }
    const float weight = 1.0f + scale * Simd::reduce_add(add_all(acc));
    out[i] = weight < 0.0f ? 0.0f : weight;
  }
  return sum_floats(out, n);
}

void mask_from_map(const int32_t* map, int64_t n, uint16_t* mask) {
  for (int64_t word = 0; word * kMaskBits < n; ++word) {
    uint32_t bits = 0;
    for (int bit = 0; bit < kMaskBits && word * kMaskBits + bit < n; ++bit) {
      bits |= static_cast<uint32_t>(map[word * kMaskBits + bit] >= 0) << bit;
    }
    mask[word] = static_cast<uint16_t>(bits);
  }
}

constexpr RowKernels make_table(const char* name) {
  return {name,
          {chunk_sum<Float32>, chunk_sum<Float16>, chunk_sum<BFloat16>},
          {chunk_sum_entropy<Float32>, chunk_sum_entropy<Float16>, chunk_sum_entropy<BFloat16>},
          {group_max<Float32>, group_max<Float16>, group_max<BFloat16>},
          {filter_at_least<Float32>, filter_at_least<Float16>, filter_at_least<BFloat16>},
          {law_probs<Float32>, law_probs<Float16>, law_probs<BFloat16>},
          {law_probs_of_ids<Float32>, law_probs_of_ids<Float16>, law_probs_of_ids<BFloat16>},
          mix,
          subtract_probs,
          dot,
          {subtract_law<Float32>, subtract_law<Float16>, subtract_law<BFloat16>},
          {subtract_mixed_law<Float32>, subtract_mixed_law<Float16>, subtract_mixed_law<BFloat16>},
          {subtract_aligned_law<Float32>, subtract_aligned_law<Float16>,
           subtract_aligned_law<BFloat16>},
          {{residual_sum<Float32, Float32>, residual_sum<Float32, Float16>,
            residual_sum<Float32, BFloat16>},
           {residual_sum<Float16, Float32>, residual_sum<Float16, Float16>,
            residual_sum<Float16, BFloat16>},
           {residual_sum<BFloat16, Float32>, residual_sum<BFloat16, Float16>,
            residual_sum<BFloat16, BFloat16>}},
          {{residual_mix_sum<Float32, Float32>, residual_mix_sum<Float32, Float16>,
            residual_mix_sum<Float32, BFloat16>},
           {residual_mix_sum<Float16, Float32>, residual_mix_sum<Float16, Float16>,
            residual_mix_sum<Float16, BFloat16>},
           {residual_mix_sum<BFloat16, Float32>, residual_mix_sum<BFloat16, Float16>,
            residual_mix_sum<BFloat16, BFloat16>}},
          exp_weights,
          mass_at_least,
          keep_side,
          add_weighted_rows,
          low_rank_weights,
          sum_floats,
          mask_from_map};
}
