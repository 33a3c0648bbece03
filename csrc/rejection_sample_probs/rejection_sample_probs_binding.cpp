// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/stable/library.h>

#include <tuple>

#include "common/torch/verify_arguments.h"
#include "rejection_sample_probs/rejection_sample_probs.h"

namespace hetero_spec {
namespace {

constexpr const char* kOp = "rejection_sample_probs";

LogitMatrix prob_matrix(const Tensor& probs, const char* argument) {
  STD_TORCH_CHECK(probs.scalar_type() == ScalarType::Float, kOp, ": ", argument,
                  " must be float32, got dtype ", static_cast<int>(probs.scalar_type()));
  return logit_matrix(probs, kOp, argument);
}

std::tuple<Tensor, Tensor, Tensor> rejection_sample_probs(
    const Tensor& target_probs, const std::optional<Tensor>& draft_probs,
    const Tensor& draft_token_ids, const Tensor& cu_num_draft_tokens, int64_t max_draft_tokens,
    const std::optional<Tensor>& seeds, const std::optional<Tensor>& positions,
    const std::optional<Tensor>& uniform_samples, int64_t rule) {
  RejectionSampleProbsInputs inputs{};
  inputs.target_probs = prob_matrix(target_probs, "target_probs");
  const Ragged ragged =
      ragged_batch(draft_token_ids, cu_num_draft_tokens, max_draft_tokens, target_probs, kOp);
  inputs.uniforms = verify_uniforms(seeds, positions, uniform_samples, ragged, target_probs, kOp);
  inputs.rule = verify_rule(rule, kOp);
  LogitMatrix draft{};
  if (draft_probs.has_value()) {
    draft = prob_matrix(*draft_probs, "draft_probs");
    check_same_device(*draft_probs, target_probs, kOp, "draft_probs");
    STD_TORCH_CHECK(
        draft_probs->size(0) == ragged.num_tokens && draft_probs->size(1) == target_probs.size(1),
        kOp, ": draft_probs must be [", ragged.num_tokens, ", ", target_probs.size(1), "], got ",
        shape_of(*draft_probs));
    inputs.draft_probs = &draft;
  }
  return with_verify_outputs(ragged, target_probs, [&](const VerifyOutputs& outputs) {
    rejection_sample_probs_cpu(ragged, inputs, outputs, torch_parallel());
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CPU, m) {
  m.impl("rejection_sample_probs", TORCH_BOX(&rejection_sample_probs));
}

}  // namespace hetero_spec
