// SPDX-License-Identifier: Apache-2.0
// draft_sample: draws one token per request from a drafter's row, in target ids, and keeps all that
// verification and the lookahead need of the row: no pass over it is ever made again.
//
//   draft_logits         float32 | float16 | bfloat16 [B, Vd], last stride 1, any row stride
//   draft_to_target_ids  int32 [Vd] or null (same ids): -1 = not shared, never drawn
//   params               one value, or one per request; truncation acts on what the map leaves
//   uniform_samples      float64 [B] in [0, 1), [B, 3] (token, leak, redraw) with a kernel, or
//   null: seeds, positions     int64 [B]; positions[b] is the sequence position of the token to be
//   drawn
//                        (streams "propose", "leak" and "redraw")
//   kernel               RDK kernel (common/rdk.h) over the target's ids, or none
//   target_to_draft_ids  int32 [V], the inverse map; read with a kernel only, null: same ids
//   target_token_ids     int32 [B], -1 where the row proposes nothing (nothing shared, no finite
//                        logit, NaN)
//   draft_token_ids      int32 [B], the same token in the drafter's ids; -1 likewise, and where the
//                        kernel moved the draft to a token that the drafter does not have
//   probs                float32 [B], draft law at the token: what verification will find from
//                        stats, bit for bit
//   stats                float32 [B, 4], the drafter's row law, before the kernel
//   entropy              float32 [B], nats, of that row law
//   max_prob             float32 [B], its largest probability
//   leaked_mass          float32 [B], what leaks to the kernel's prior, or null; with a low-rank
//                        kernel [B, n + 1], the row's coefficients and total weight
//                        (common/low_rank.h), 0 where lam is 0
//
// The draw is by inverse CDF in the drafter's vocabulary order: the first id whose cumulative
// probability exceeds the uniform. A kernel then keeps that token, or draws another from its prior
// (binary search) or from the token's sparse row (scan): no pass over the vocabulary, but for a
// leak that is not constant, whose mass is summed over the row. A low-rank kernel reads its factors
// twice, and one chunk of them again for a draw from its weights; where those make no law (broken
// factors) the row proposes nothing. Source: Timor et al. 2025 (arXiv
// 2502.05202), token-level intersection; Timor et al. 2025 (arXiv 2506.03206), redistribution.
#pragma once

#include "common/cpu/parallel.h"
#include "common/cpu/row_law_cpu.h"
#include "common/rdk.h"

namespace hetero_spec {

struct DraftSampleOutputs {
  int32_t* target_token_ids;
  int32_t* draft_token_ids;
  float* probs;
  RowStats* stats;
  float* entropy;
  float* max_prob;
  float* leaked_mass;  // [B, kernel.row_width()], null without a kernel
};

struct DraftUniforms {
  const double* samples;     // [B], with a kernel [B, 3], or null: then
  const int64_t* seeds;      // [B]
  const int64_t* positions;  // [B]
};

void draft_sample_cpu(const LogitMatrix& draft_logits, int64_t batch_size,
                      const int32_t* draft_to_target_ids, const int32_t* target_to_draft_ids,
                      const RdkKernel& kernel, const SamplingParams& params,
                      const DraftUniforms& uniforms, const DraftSampleOutputs& outputs,
                      const Parallel& parallel);

}  // namespace hetero_spec
