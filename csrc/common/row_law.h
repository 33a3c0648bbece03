// SPDX-License-Identifier: Apache-2.0
// Row law: a distribution over a vocabulary as a row of logits plus four numbers.
//
//   prob(t) = 0                                                        if logit(t) < cutoff
//             exp((logit(t) - max_logit) * inv_temperature - log_normalizer)       otherwise
//
// The four numbers are the public `stats` tensor, float32 [rows, 4], in the order of RowStats.
// Special rows, so that every row fits the same 16 bytes:
//   greedy   inv_temperature = +inf; log_normalizer = the lowest id among the largest logits, as a
//            float (exact below 2^24 ids); prob = 1 at that id and 0 elsewhere.
//   empty    max_logit = -inf, cutoff = +inf: no finite logit; prob = 0 everywhere.
//   invalid  all four NaN: a NaN or +inf logit, or sampling parameters that make no sense.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "common/portability.h"

namespace hetero_spec {

// Vocabulary ids per unit of work. It never depends on the batch or on the device, so that the sums
// of a row are the same bits wherever the row lands. 8 bytes of (max, sum) per chunk are then
// 0.1 % of a bfloat16 row. A multiple of every vector width and of the mask word (16 ids).
constexpr int kChunk = 4096;

// Largest vocabulary: a greedy row stores an id in a float32.
constexpr int64_t kMaxVocabSize = int64_t{1} << 24;

struct RowStats {
  float max_logit;
  float inv_temperature;
  float log_normalizer;
  float cutoff;
};

// (max, sum of exp((logit - max) * inv_temperature)) of one chunk. sum is NaN where the chunk holds
// NaN or +inf; max = -inf and sum = 0 where it holds no finite logit.
struct ChunkSum {
  float max_logit;
  float sum;
};

HETERO_SPEC_HD inline int64_t num_chunks(int64_t vocab_size) {
  return (vocab_size + kChunk - 1) / kChunk;
}

HETERO_SPEC_HD inline bool is_greedy(const RowStats& stats) {
  return stats.inv_temperature == INFINITY && stats.max_logit > -INFINITY;
}

HETERO_SPEC_HD inline bool is_invalid(const RowStats& stats) {
  return stats.max_logit != stats.max_logit;
}

HETERO_SPEC_HD inline bool is_empty(const RowStats& stats) { return stats.max_logit == -INFINITY; }

HETERO_SPEC_HD inline bool is_truncated(const RowStats& stats) {
  return stats.cutoff > -INFINITY && !is_greedy(stats);
}

HETERO_SPEC_HD inline int64_t greedy_id(const RowStats& stats) {
  return static_cast<int64_t>(stats.log_normalizer);
}

HETERO_SPEC_HD inline RowStats greedy_stats(float max_logit, int64_t id) {
  return {max_logit, INFINITY, static_cast<float>(id), max_logit};
}

HETERO_SPEC_HD inline RowStats invalid_stats() { return {NAN, NAN, NAN, NAN}; }

HETERO_SPEC_HD inline RowStats empty_stats(float inv_temperature) {
  return {-INFINITY, inv_temperature, -INFINITY, INFINITY};
}

// Probability of one id whose logit is at hand. An invalid row gives NaN.
HETERO_SPEC_HD inline float law_prob(const RowStats& stats, float logit, int64_t id) {
  if (is_invalid(stats)) return NAN;
  if (is_greedy(stats)) return id == greedy_id(stats) ? 1.0f : 0.0f;
  if (logit < stats.cutoff) return 0.0f;
  // The maximum is subtracted before the temperature divides: fp16 logits at T = 1e-6 stay finite.
  return expf((logit - stats.max_logit) * stats.inv_temperature - stats.log_normalizer);
}

// 1 / temperature; +inf marks a greedy row (temperature 0, or too small for 1 / T in float32);
// NaN marks a temperature that makes no sense.
HETERO_SPEC_HD inline float inverse_temperature(float temperature) {
  if (!(temperature >= 0.0f && temperature < INFINITY)) return NAN;
  if (temperature == 0.0f) return INFINITY;
  return 1.0f / temperature;
}

// The cutoff that min_p stands for: prob(t) >= min_p * max prob.
HETERO_SPEC_HD inline float min_p_cutoff(float max_logit, float inv_temperature, float min_p) {
  if (!(min_p > 0.0f)) return -INFINITY;
  return static_cast<float>(static_cast<double>(max_logit) +
                            log(static_cast<double>(min_p)) / static_cast<double>(inv_temperature));
}

}  // namespace hetero_spec
