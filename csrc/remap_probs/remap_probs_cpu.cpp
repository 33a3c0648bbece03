// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "remap_probs/remap_probs.h"
#include "row_stats/row_stats.h"

namespace hetero_spec {

void remap_probs_cpu(const LogitMatrix& draft_logits, int64_t num_rows,
                     const int32_t* draft_to_target_ids, int64_t target_vocab_size,
                     const SamplingParams& params, float* probs, const Parallel& parallel) {
  const RowKernels& kernels = row_kernels();
  std::vector<RowStats> stats(num_rows);
  row_stats_cpu(draft_logits, num_rows, draft_to_target_ids, params, stats.data(), parallel);
  parallel_for(parallel, num_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row_idx = begin; row_idx < end; ++row_idx) {
      const LogitRow row = draft_logits.row(row_idx);
      const RowStats& law = stats[row_idx];
      float* out = probs + row_idx * target_vocab_size;
      std::fill_n(out, target_vocab_size, is_invalid(law) ? NAN : 0.0f);
      if (is_invalid(law) || is_empty(law)) continue;
      for (int64_t chunk = 0; chunk < num_chunks(row.vocab_size); ++chunk) {
        float* weights = chunk_buffer();
        const int n = row.chunk_size(chunk);
        const int32_t* ids = draft_to_target_ids + chunk * kChunk;
        if (!is_greedy(law)) {
          kernels.law_probs[static_cast<int>(row.dtype)](row.chunk(chunk), n, nullptr, law,
                                                         weights);
        }
        for (int i = 0; i < n; ++i) {
          if (ids[i] < 0 || ids[i] >= target_vocab_size) continue;
          const int64_t id = chunk * kChunk + i;
          out[ids[i]] = is_greedy(law) ? (id == greedy_id(law) ? 1.0f : 0.0f) : weights[i];
        }
      }
    }
  });
}

}  // namespace hetero_spec
