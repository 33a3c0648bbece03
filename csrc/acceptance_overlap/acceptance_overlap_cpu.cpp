// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "acceptance_overlap/acceptance_overlap.h"
#include "common/cpu/residual.h"

namespace hetero_spec {

void acceptance_overlap_cpu(const LogitMatrix& target_logits, const LogitMatrix& draft_logits,
                            int64_t num_rows, const RowStats* draft_stats,
                            const int32_t* target_to_draft_ids, const SamplingParams& params,
                            float* overlap, const Parallel& parallel) {
  std::vector<RowRequest> requests;
  for (int64_t row = 0; row < num_rows; ++row)
    requests.push_back({row, request_params(params, row)});
  std::vector<ChunkSum> scratch;
  std::vector<RowLaw> targets(num_rows), drafts(num_rows);
  compute_row_laws(target_logits, requests.data(), num_rows, false, parallel, &scratch,
                   targets.data());
  if (draft_stats) {
    for (int64_t row = 0; row < num_rows; ++row) drafts[row].stats = draft_stats[row];
  } else {
    LogitMatrix masked = draft_logits;
    DraftMask mask;
    if (target_to_draft_ids) {
      mask = DraftMask::from_target_to_draft(target_to_draft_ids, target_logits.vocab_size,
                                             draft_logits.vocab_size);
      mask.apply_to(&masked);
    }
    compute_row_laws(masked, requests.data(), num_rows, false, parallel, &scratch, drafts.data());
  }
  const int64_t chunks = num_chunks(target_logits.vocab_size);
  std::vector<double> shared(num_rows * chunks);
  parallel_for(parallel, num_rows * chunks, 2, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / chunks, chunk = task % chunks;
      const RowStats& target = targets[row].stats;
      const RowStats& draft = drafts[row].stats;
      if (is_invalid(target) || is_empty(target) || is_invalid(draft) || is_empty(draft)) continue;
      float* weights = chunk_buffer();
      const double target_mass = target_chunk_probs(target_logits.row(row), target, chunk, weights);
      // min(a, b) = a - max(0, a - b)
      shared[task] = target_mass -
                     subtract_draft_chunk(draft_logits.row(row), draft, target_to_draft_ids, 1.0f,
                                          chunk, target_logits.row(row).chunk_size(chunk), weights);
    }
  });
  for (int64_t row = 0; row < num_rows; ++row) {
    const RowStats& target = targets[row].stats;
    const RowStats& draft = drafts[row].stats;
    double sum = 0.0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += shared[row * chunks + chunk];
    const bool is_law =
        !(is_invalid(target) || is_empty(target) || is_invalid(draft) || is_empty(draft));
    overlap[row] = is_law ? static_cast<float>(std::clamp(sum, 0.0, 1.0)) : NAN;
  }
}

}  // namespace hetero_spec
