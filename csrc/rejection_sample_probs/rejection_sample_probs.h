// SPDX-License-Identifier: Apache-2.0
// rejection_sample_probs: rejection_sample for callers that already hold probabilities.
//
//   target_probs          float32 [R, V], R = N + B; rows sum to 1 (only their ratio to the draft's
//   matters) draft_probs           float32 [N, V] over target ids, or null: one-hot drafts the rest
//   as in rejection_sample/rejection_sample.h
//
// Every target row up to the one where its request stops is summed whole, so that a NaN anywhere in
// it is flagged. Negative entries count as 0.
#pragma once

#include "common/cpu/verify_cpu.h"

namespace hetero_spec {

struct RejectionSampleProbsInputs {
  LogitMatrix target_probs;
  const LogitMatrix* draft_probs;
  Uniforms uniforms;
  Rule rule;
};

void rejection_sample_probs_cpu(const Ragged& ragged, const RejectionSampleProbsInputs& inputs,
                                const VerifyOutputs& outputs, const Parallel& parallel);

}  // namespace hetero_spec
