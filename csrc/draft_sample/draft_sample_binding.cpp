// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/stable/library.h>

#include <tuple>

#include "common/torch/arguments.h"
#include "draft_sample/draft_sample.h"

namespace hetero_spec {
namespace {

constexpr const char* kOp = "draft_sample";

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> draft_sample(
    const Tensor& draft_logits, const std::optional<Tensor>& draft_to_target_ids,
    const std::optional<Tensor>& temperature, const std::optional<Tensor>& top_k,
    const std::optional<Tensor>& top_p, const std::optional<Tensor>& min_p,
    double default_temperature, int64_t default_top_k, double default_top_p, double default_min_p,
    const std::optional<Tensor>& seeds, const std::optional<Tensor>& positions,
    const std::optional<Tensor>& uniform_samples) {
  const LogitMatrix matrix = logit_matrix(draft_logits, kOp, "draft_logits");
  const int64_t batch_size = draft_logits.size(0);
  const SamplingParams params =
      sampling_params({temperature, top_k, top_p, min_p, default_temperature, default_top_k,
                       default_top_p, default_min_p},
                      batch_size, draft_logits, kOp);
  const int32_t* map =
      optional_data<int32_t>(draft_to_target_ids, ScalarType::Int, {draft_logits.size(1)},
                             draft_logits, kOp, "draft_to_target_ids");
  DraftUniforms uniforms{};
  uniforms.samples = optional_data<double>(uniform_samples, ScalarType::Double, {batch_size},
                                           draft_logits, kOp, "uniform_samples");
  uniforms.seeds =
      optional_data<int64_t>(seeds, ScalarType::Long, {batch_size}, draft_logits, kOp, "seeds");
  uniforms.positions = optional_data<int64_t>(positions, ScalarType::Long, {batch_size},
                                              draft_logits, kOp, "positions");
  STD_TORCH_CHECK(uniform_samples.has_value() || (seeds.has_value() && positions.has_value()), kOp,
                  ": uniform_samples must be given, or seeds and positions, got neither");

  Tensor target_token_ids = new_tensor(draft_logits, {batch_size}, ScalarType::Int);
  Tensor draft_token_ids = new_tensor(draft_logits, {batch_size}, ScalarType::Int);
  Tensor probs = new_tensor(draft_logits, {batch_size}, ScalarType::Float);
  Tensor stats = new_tensor(draft_logits, {batch_size, 4}, ScalarType::Float);
  Tensor entropy = new_tensor(draft_logits, {batch_size}, ScalarType::Float);
  Tensor max_prob = new_tensor(draft_logits, {batch_size}, ScalarType::Float);
  draft_sample_cpu(matrix, batch_size, map, params, uniforms,
                   {static_cast<int32_t*>(target_token_ids.mutable_data_ptr()),
                    static_cast<int32_t*>(draft_token_ids.mutable_data_ptr()),
                    static_cast<float*>(probs.mutable_data_ptr()),
                    static_cast<RowStats*>(stats.mutable_data_ptr()),
                    static_cast<float*>(entropy.mutable_data_ptr()),
                    static_cast<float*>(max_prob.mutable_data_ptr())},
                   torch_parallel());
  return {target_token_ids, draft_token_ids, probs, stats, entropy, max_prob};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CPU, m) { m.impl("draft_sample", TORCH_BOX(&draft_sample)); }

}  // namespace hetero_spec
