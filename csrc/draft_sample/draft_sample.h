// SPDX-License-Identifier: Apache-2.0
// draft_sample: draws one token per request from a drafter's row, in target ids, and keeps all that
// verification and the lookahead need of the row: no pass over it is ever made again.
//
//   draft_logits         float32 | float16 | bfloat16 [B, Vd], last stride 1, any row stride
//   draft_to_target_ids  int32 [Vd] or null (same ids): -1 = not shared, never drawn
//   params               one value, or one per request; truncation acts on what the map leaves
//   uniform_samples      float64 [B] in [0, 1), or null: then
//   seeds, positions     int64 [B]; positions[b] is the sequence position of the token to be drawn
//   (stream "propose") target_token_ids     int32 [B], -1 where the row proposes nothing (nothing
//   shared, no finite logit, NaN) draft_token_ids      int32 [B], the same token in the drafter's
//   ids probs                float32 [B], draft law at the token: what verification will find from
//   stats, bit for bit stats                float32 [B, 4], the row law entropy float32 [B], nats,
//   of the draft law max_prob             float32 [B], largest probability of the draft law
//
// The draw is by inverse CDF in the drafter's vocabulary order: the first id whose cumulative
// probability exceeds the uniform. Source: Timor et al. 2025 (arXiv 2502.05202), token-level
// intersection.
#pragma once

#include "common/cpu/parallel.h"
#include "common/cpu/row_law_cpu.h"

namespace hetero_spec {

struct DraftSampleOutputs {
  int32_t* target_token_ids;
  int32_t* draft_token_ids;
  float* probs;
  RowStats* stats;
  float* entropy;
  float* max_prob;
};

struct DraftUniforms {
  const double* samples;     // [B] or null: then
  const int64_t* seeds;      // [B]
  const int64_t* positions;  // [B]
};

void draft_sample_cpu(const LogitMatrix& draft_logits, int64_t batch_size,
                      const int32_t* draft_to_target_ids, const SamplingParams& params,
                      const DraftUniforms& uniforms, const DraftSampleOutputs& outputs,
                      const Parallel& parallel);

}  // namespace hetero_spec
