// SPDX-License-Identifier: Apache-2.0
#include "rejection_sample_probs/rejection_sample_probs.h"

namespace hetero_spec {

void rejection_sample_probs_cpu(const Ragged& ragged, const RejectionSampleProbsInputs& inputs,
                                const VerifyOutputs& outputs, const Parallel& parallel) {
  VerifyInputs verify_inputs{};
  verify_inputs.target = inputs.target_probs;
  verify_inputs.are_probs = true;
  if (inputs.draft_probs) {
    verify_inputs.has_draft_law = true;
    verify_inputs.draft = *inputs.draft_probs;
  }
  verify_inputs.params.default_temperature = 1.0f;
  verify_inputs.params.default_top_p = 1.0f;
  verify_inputs.uniforms = inputs.uniforms;
  verify_inputs.rule = inputs.rule;
  verify(ragged, verify_inputs, outputs, parallel);
}

}  // namespace hetero_spec
