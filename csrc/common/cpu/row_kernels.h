// SPDX-License-Identifier: Apache-2.0
// The inner loops over one chunk of one row, vectorised: all the code that depends on an
// instruction set.
//
// row_kernels_<isa>.cpp each fill one table from row_kernels.inl; row_kernels() picks one at run
// time. Every function handles n <= kChunk ids. `mask` holds one bit per id, 16 ids a word (null:
// all ids count); an id whose bit is 0 is treated as if its logit were -inf, whatever its bits are.
#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "common/row_law.h"

namespace hetero_spec {

constexpr int kMaskBits = 16;
constexpr int kVectorRoom = 16;                      // no vector is wider
constexpr int kMaxGroup = 256;                       // ids per entry of group_max
constexpr int kGroupsPerChunk = kChunk / kMaxGroup;  // 16

inline int64_t mask_words(int64_t vocab_size) { return (vocab_size + kMaskBits - 1) / kMaskBits; }

// What a redistributed law is mixed from, over the ids of one chunk (see common/rdk.h).
struct MixTerms {
  float keep;          // 1 - a where the leak is constant, else 1
  const float* leak;   // a, or null
  float prior_share;   // s
  const float* prior;  // r, or null
  const float* extra;  // what S brings to each id less what it takes away, or null
};

struct RowKernels {
  const char* name;

  // (max, sum of exp((x - max) * inv_temperature)); NaN and +inf make the sum NaN.
  void (*chunk_sum[kNumDTypes])(const void* logits, int n, const uint16_t* mask,
                                float inv_temperature, ChunkSum* out);

  // The same, and the sum of exp(y) * y with y = (x - max) * inv_temperature, for the entropy.
  void (*chunk_sum_entropy[kNumDTypes])(const void* logits, int n, const uint16_t* mask,
                                        float inv_temperature, ChunkSum* out, float* weighted_sum);

  // Largest logit of each group of kMaxGroup ids.
  void (*group_max[kNumDTypes])(const void* logits, int n, const uint16_t* mask, float* out);

  // Copies the logits >= threshold, in order; stops before out would hold more than capacity
  // values. Returns their number, or -1 if they do not fit.
  int (*filter_at_least[kNumDTypes])(const void* logits, int n, const uint16_t* mask,
                                     float threshold, float* out, int capacity);

  // probs[i] = probability of id i under the law `stats` (not greedy, not invalid); returns their
  // sum.
  float (*law_probs[kNumDTypes])(const void* logits, int n, const uint16_t* mask,
                                 const RowStats& stats, float* probs);

  // The same for ids of the whole row in any order; ids < 0 or >= vocab_size have probability 0.
  float (*law_probs_of_ids[kNumDTypes])(const void* logits, int64_t vocab_size, const int32_t* ids,
                                        int n, const RowStats& stats, float* probs);

  // probs[i] = (keep - leak[i]) * probs[i] + prior_share * prior[i] + extra[i].
  void (*mix)(float* probs, int n, const MixTerms& terms);

  // probs[i] = max(0, scale * probs[i] - draft[i]); returns their sum. NaN is kept.
  float (*subtract_probs)(float* probs, int n, float scale, const float* draft);

  // Sum of x[i] * y[i].
  float (*dot)(const float* x, const float* y, int n);

  // probs[i] = max(0, scale * probs[i] - draft probability of ids[i]) and their sum. `draft` is the
  // whole draft row; ids < 0 or >= draft_vocab_size have draft probability 0. The law is not
  // greedy, not invalid.
  float (*subtract_law[kNumDTypes])(float* probs, int n, float scale, const void* draft,
                                    int64_t draft_vocab_size, const RowStats& stats,
                                    const int32_t* ids);

  // The same with the draft law mixed by `terms`.
  float (*subtract_mixed_law[kNumDTypes])(float* probs, int n, float scale, const void* draft,
                                          int64_t draft_vocab_size, const RowStats& stats,
                                          const int32_t* ids, const MixTerms& terms);

  // As subtract_law, for a draft that shares the target's ids: `draft` points at the chunk's first
  // id.
  float (*subtract_aligned_law[kNumDTypes])(float* probs, int n, float scale, const void* draft,
                                            const RowStats& stats);

  // Sum of max(0, scale * target probability - draft probability) over the chunk, for laws over the
  // same ids that are neither greedy nor invalid. Indexed by the target's and the draft's type.
  // Nothing is stored: most chunks of a residual are only summed.
  float (*residual_sum[kNumDTypes][kNumDTypes])(const void* target, const RowStats& target_stats,
                                                float scale, const void* draft,
                                                const RowStats& draft_stats, int n);

  // The same with the draft law mixed by `terms`.
  float (*residual_mix_sum[kNumDTypes][kNumDTypes])(const void* target,
                                                    const RowStats& target_stats, float scale,
                                                    const void* draft, const RowStats& draft_stats,
                                                    const MixTerms& terms, int n);

  // exp((x[i] - max) * inv_temperature) for float32 values.
  void (*exp_weights)(const float* x, int n, float max_logit, float inv_temperature,
                      float* weights);

  // Number and mass (sum of weights) of the values >= pivot.
  float (*mass_at_least)(const float* x, const float* weights, int n, float pivot, int* count);

  // Keeps, in place, the values >= pivot (or those < pivot) with their weights; returns their
  // number. Both arrays need room for one vector more than n.
  int (*keep_side)(float* x, float* weights, int n, float pivot, bool upper);

  // out[k] += sum over i of weights[i] * rows[i, k], for rows [n, width]; one of weight 0 is not
  // read.
  void (*add_weighted_rows)(const float* rows, int width, const float* weights, int n, float* out);

  // out[i] = max(0, 1 + scale * rows[i] . x), for rows [n, width]; returns their sum. NaN is kept.
  float (*low_rank_weights)(const float* rows, int width, const float* x, float scale, int n,
                            float* out);

  // Sum of n floats; NaN stays NaN.
  float (*sum)(const float* x, int n);

  // One bit per entry of `map`: is it >= 0? n may be any length here.
  void (*mask_from_map)(const int32_t* map, int64_t n, uint16_t* mask);
};

// The table for this processor, or the one that HETERO_SPEC_CPU_ISA (generic, avx2, avx512) names.
const RowKernels& row_kernels();

}  // namespace hetero_spec
