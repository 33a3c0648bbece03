// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/stable/library.h>

#include <tuple>

#include "common/torch/verify_arguments.h"
#include "rejection_sample/rejection_sample.h"

namespace hetero_spec {
namespace {

constexpr const char* kOp = "rejection_sample";

std::tuple<Tensor, Tensor, Tensor> rejection_sample(
    const Tensor& target_logits, const Tensor& draft_token_ids, const Tensor& cu_num_draft_tokens,
    int64_t max_draft_tokens, const std::optional<Tensor>& draft_logits,
    const std::optional<Tensor>& draft_stats, const std::optional<Tensor>& target_to_draft_ids,
    const std::optional<Tensor>& temperature, const std::optional<Tensor>& top_k,
    const std::optional<Tensor>& top_p, const std::optional<Tensor>& min_p,
    double default_temperature, int64_t default_top_k, double default_top_p, double default_min_p,
    const std::optional<Tensor>& seeds, const std::optional<Tensor>& positions,
    const std::optional<Tensor>& uniform_samples, int64_t rule) {
  RejectionSampleInputs inputs{};
  inputs.target_logits = logit_matrix(target_logits, kOp, "target_logits");
  const Ragged ragged =
      ragged_batch(draft_token_ids, cu_num_draft_tokens, max_draft_tokens, target_logits, kOp);
  inputs.params = sampling_params({temperature, top_k, top_p, min_p, default_temperature,
                                   default_top_k, default_top_p, default_min_p},
                                  ragged.batch_size, target_logits, kOp);
  inputs.uniforms = verify_uniforms(seeds, positions, uniform_samples, ragged, target_logits, kOp);
  inputs.rule = verify_rule(rule, kOp);
  inputs.target_to_draft_ids =
      optional_data<int32_t>(target_to_draft_ids, ScalarType::Int, {target_logits.size(1)},
                             target_logits, kOp, "target_to_draft_ids");
  LogitMatrix draft{};
  if (draft_logits.has_value()) {
    draft = logit_matrix(*draft_logits, kOp, "draft_logits");
    check_same_device(*draft_logits, target_logits, kOp, "draft_logits");
    STD_TORCH_CHECK(draft_logits->size(0) == ragged.num_tokens, kOp, ": draft_logits must be [",
                    ragged.num_tokens, ", Vd], got ", shape_of(*draft_logits));
    STD_TORCH_CHECK(
        inputs.target_to_draft_ids || draft.vocab_size == inputs.target_logits.vocab_size, kOp,
        ": draft_logits must be ", inputs.target_logits.vocab_size,
        " ids wide without target_to_draft_ids, got ", draft.vocab_size);
    inputs.draft_logits = &draft;
    inputs.draft_stats = optional_data<RowStats>(
        draft_stats, ScalarType::Float, {ragged.num_tokens, 4}, target_logits, kOp, "draft_stats");
  }
  return with_verify_outputs(ragged, target_logits, [&](const VerifyOutputs& outputs) {
    rejection_sample_cpu(ragged, inputs, outputs, torch_parallel());
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CPU, m) {
  m.impl("rejection_sample", TORCH_BOX(&rejection_sample));
}

}  // namespace hetero_spec
