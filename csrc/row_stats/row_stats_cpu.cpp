// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "row_stats/row_stats.h"

namespace hetero_spec {

void row_stats_cpu(const LogitMatrix& logits, int64_t num_rows, const int32_t* draft_to_target_ids,
                   const SamplingParams& params, RowStats* stats, const Parallel& parallel) {
  LogitMatrix masked = logits;
  DraftMask mask;
  if (draft_to_target_ids) {
    mask = DraftMask::from_draft_to_target(draft_to_target_ids, logits.vocab_size);
    mask.apply_to(&masked);
  }
  std::vector<RowRequest> requests;
  requests.reserve(num_rows);
  for (int64_t row = 0; row < num_rows; ++row)
    requests.push_back({row, request_params(params, row)});
  std::vector<RowLaw> laws(num_rows);
  std::vector<ChunkSum> chunk_sums;
  compute_row_laws(masked, requests.data(), num_rows, false, parallel, &chunk_sums, laws.data());
  for (int64_t row = 0; row < num_rows; ++row) stats[row] = laws[row].stats;
}

}  // namespace hetero_spec
