// SPDX-License-Identifier: Apache-2.0
// The cutoff of a truncated row law: the strictest of top-k, top-p and min-p, found by selection,
// not by sorting.
#pragma once

#include <cstdint>

#include "common/cpu/row_kernels.h"
#include "common/row_law.h"
#include "common/sampling_params.h"

namespace hetero_spec {

// One row of logits as it lies in memory.
struct LogitRow {
  const void* logits;
  DType dtype;
  int64_t vocab_size;
  const uint16_t* mask;  // one bit per id, or null
  int64_t num_ids;       // ids that the mask leaves

  const void* chunk(int64_t idx) const {
    return static_cast<const char*>(logits) + idx * kChunk * element_size(dtype);
  }
  const uint16_t* chunk_mask(int64_t idx) const {
    return mask ? mask + idx * (kChunk / kMaskBits) : nullptr;
  }
  int chunk_size(int64_t idx) const {
    const int64_t left = vocab_size - idx * kChunk;
    return static_cast<int>(left < kChunk ? left : kChunk);
  }
  float at(int64_t id) const;
};

inline bool has_top_k(const RequestParams& params, int64_t num_ids) {
  return params.top_k > 0 && params.top_k < num_ids;
}
inline bool has_top_p(const RequestParams& params) { return params.top_p < 1.0f; }
inline bool has_truncation(const RequestParams& params, int64_t num_ids) {
  return has_top_k(params, num_ids) || has_top_p(params) || params.min_p > 0.0f;
}

// A truncated law: ids with logit >= cutoff, and sums over them relative to the row's maximum.
struct Truncation {
  float cutoff;
  double kept_sum;           // sum of w = exp((logit - max) * inv_temperature)
  double kept_weighted_sum;  // sum of w * (logit - max) * inv_temperature, if it was wanted
};

// sums, max_logit and total_sum (of w, over the whole row) come from the pass over the chunks. The
// row is finite and not greedy. Reads the row once more (top-k: twice); a flat row whose nucleus is
// most of the vocabulary twice. Memory: fixed buffers per thread, none that grows with the
// vocabulary.
Truncation truncate_row(const LogitRow& row, const RequestParams& params, const ChunkSum* sums,
                        float max_logit, double total_sum, bool want_weighted_sum);

}  // namespace hetero_spec
