// SPDX-License-Identifier: Apache-2.0
#include "rejection_sample/rejection_sample.h"

namespace hetero_spec {

void rejection_sample_cpu(const Ragged& ragged, const RejectionSampleInputs& inputs,
                          const VerifyOutputs& outputs, const Parallel& parallel) {
  VerifyInputs verify_inputs{};
  verify_inputs.target = inputs.target_logits;
  verify_inputs.draft_stats = inputs.draft_stats;
  verify_inputs.target_to_draft_ids = inputs.target_to_draft_ids;
  verify_inputs.kernel = inputs.kernel;
  verify_inputs.draft_leaked_mass = inputs.draft_leaked_mass;
  verify_inputs.params = inputs.params;
  verify_inputs.uniforms = inputs.uniforms;
  verify_inputs.rule = inputs.rule;
  DraftMask mask;
  if (inputs.draft_logits) {
    verify_inputs.has_draft_law = true;
    verify_inputs.draft = *inputs.draft_logits;
    // Only a law that is made here has to know which of the drafter's ids count; saved stats know
    // it already.
    if (inputs.target_to_draft_ids && !inputs.draft_stats) {
      mask = DraftMask::from_target_to_draft(inputs.target_to_draft_ids,
                                             inputs.target_logits.vocab_size,
                                             inputs.draft_logits->vocab_size);
      mask.apply_to(&verify_inputs.draft);
    }
  }
  verify(ragged, verify_inputs, outputs, parallel);
}

}  // namespace hetero_spec
