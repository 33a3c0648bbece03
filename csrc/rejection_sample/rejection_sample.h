// SPDX-License-Identifier: Apache-2.0
// rejection_sample: verifies the drafts of a ragged batch against the target's logits; the output
// has the law of the target, whatever the drafter.
//
//   target_logits         float32 | float16 | bfloat16 [R, V], R = N + B: request b owns rows cu[b]
//   + b .. cu[b + 1] + b;
//                         row j of a request is the law of its token j. Last stride 1, any row
//                         stride.
//   draft_token_ids       int32 [N], target ids, requests back to back; -1 ends a request's draft
//   cu_num_draft_tokens   int32 [B + 1], leading 0
//   draft_logits          [N, Vd] the rows that the drafts were drawn from, or null: one-hot drafts
//   draft_stats           float32 [N, 4] their laws as draft_sample returned them, or null:
//   computed with the request's
//                         own parameters, over the ids that target_to_draft_ids names
//   target_to_draft_ids   int32 [V], -1 = not shared, or null: same ids (Vd = V)
//   kernel                RDK kernel (common/rdk.h) that redistributed the draft laws, or none
//   draft_leaked_mass     float32 [N], with a low-rank kernel [N, n + 1], as draft_sample returned
//                         it, or null: made from each draft row that is tested, where the kernel
//                         is low-rank or its leak not constant
//   params                one value, or one per request
//   uniforms              float64 [R, 2] (accept, resample), or seeds and positions int64 [B]
//   output_token_ids      int32 [B, K + 1]: accepted ids, then one recovered or bonus id, then -1
//   num_accepted_tokens   int32 [B]: the leading accepted run
//   status                int32 [B]: bits of common/status.h
//
// Token rule (Leviathan et al. 2023, arXiv 2211.17192): at each draft token, accept iff u *
// draft_prob < target_prob; at the first rejection draw from norm((target - draft)+); with all
// accepted draw from the next target row (bonus). Block rule (Sun et al. 2024, arXiv 2403.10444):
// never fewer accepted tokens in expectation; reads every row. A kernel changes the draft law and
// nothing else: at the drafted token it costs a few entries, over the vocabulary it is evaluated
// for residuals only.
//
// Broken input never leaves its request: a row that is no law is flagged and ends its request with
// the lowest id of its largest non-NaN logit (0 if there is none); a draft id outside [0, V) is
// rejected and the target law drawn from; a draft token of draft probability 0 or NaN is rejected
// (block rule: ends the draft); a residual without finite mass is replaced by the target law.
#pragma once

#include "common/cpu/verify_cpu.h"

namespace hetero_spec {

struct RejectionSampleInputs {
  LogitMatrix target_logits;
  const LogitMatrix* draft_logits;
  const RowStats* draft_stats;
  const int32_t* target_to_draft_ids;
  RdkKernel kernel;
  const float* draft_leaked_mass;
  SamplingParams params;
  Uniforms uniforms;
  Rule rule;
};

void rejection_sample_cpu(const Ragged& ragged, const RejectionSampleInputs& inputs,
                          const VerifyOutputs& outputs, const Parallel& parallel);

}  // namespace hetero_spec
