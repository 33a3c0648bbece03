// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/stable/library.h>

#include <tuple>

#include "common/torch/arguments.h"
#include "draft_sample/draft_sample.h"
#if defined(HETERO_SPEC_WITH_CUDA)
#include "common/torch/cuda.h"
#include "draft_sample/draft_sample_cuda.h"
#endif

namespace hetero_spec {
namespace {

constexpr const char* kOp = "draft_sample";

struct Call {
  LogitMatrix logits;
  int64_t batch_size;
  const int32_t* draft_to_target_ids;
  SamplingParams params;
  DraftUniforms uniforms;
};

Call checked(const Tensor& draft_logits, const std::optional<Tensor>& draft_to_target_ids,
             const SamplingTensors& params, const std::optional<Tensor>& seeds,
             const std::optional<Tensor>& positions, const std::optional<Tensor>& uniform_samples) {
  const LogitMatrix matrix = logit_matrix(draft_logits, kOp, "draft_logits");
  const int64_t batch_size = draft_logits.size(0);
  Call out{matrix, batch_size, nullptr, sampling_params(params, batch_size, draft_logits, kOp), {}};
  out.draft_to_target_ids =
      optional_data<int32_t>(draft_to_target_ids, ScalarType::Int, {draft_logits.size(1)},
                             draft_logits, kOp, "draft_to_target_ids");
  out.uniforms.samples = optional_data<double>(uniform_samples, ScalarType::Double, {batch_size},
                                               draft_logits, kOp, "uniform_samples");
  out.uniforms.seeds =
      optional_data<int64_t>(seeds, ScalarType::Long, {batch_size}, draft_logits, kOp, "seeds");
  out.uniforms.positions = optional_data<int64_t>(positions, ScalarType::Long, {batch_size},
                                                  draft_logits, kOp, "positions");
  // Asked of the arguments, not of the pointers: those are null for an empty batch.
  STD_TORCH_CHECK(uniform_samples.has_value() || (seeds.has_value() && positions.has_value()), kOp,
                  ": uniform_samples must be given, or seeds and positions, got neither");
  return out;
}

// The op's six results, in the schema's order.
struct Results {
  Tensor target_token_ids, draft_token_ids, probs, stats, entropy, max_prob;

  Results(const Tensor& like, int64_t batch_size)
      : target_token_ids(new_tensor(like, {batch_size}, ScalarType::Int)),
        draft_token_ids(new_tensor(like, {batch_size}, ScalarType::Int)),
        probs(new_tensor(like, {batch_size}, ScalarType::Float)),
        stats(new_tensor(like, {batch_size, 4}, ScalarType::Float)),
        entropy(new_tensor(like, {batch_size}, ScalarType::Float)),
        max_prob(new_tensor(like, {batch_size}, ScalarType::Float)) {}

  DraftSampleOutputs pointers() {
    return {static_cast<int32_t*>(target_token_ids.mutable_data_ptr()),
            static_cast<int32_t*>(draft_token_ids.mutable_data_ptr()),
            static_cast<float*>(probs.mutable_data_ptr()),
            static_cast<RowStats*>(stats.mutable_data_ptr()),
            static_cast<float*>(entropy.mutable_data_ptr()),
            static_cast<float*>(max_prob.mutable_data_ptr())};
  }

  std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> tuple() const {
    return {target_token_ids, draft_token_ids, probs, stats, entropy, max_prob};
  }
};

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> draft_sample(
    const Tensor& draft_logits, const std::optional<Tensor>& draft_to_target_ids,
    const std::optional<Tensor>& temperature, const std::optional<Tensor>& top_k,
    const std::optional<Tensor>& top_p, const std::optional<Tensor>& min_p,
    double default_temperature, int64_t default_top_k, double default_top_p, double default_min_p,
    const std::optional<Tensor>& seeds, const std::optional<Tensor>& positions,
    const std::optional<Tensor>& uniform_samples) {
  const Call call = checked(draft_logits, draft_to_target_ids,
                            {temperature, top_k, top_p, min_p, default_temperature, default_top_k,
                             default_top_p, default_min_p},
                            seeds, positions, uniform_samples);
  Results results(draft_logits, call.batch_size);
  draft_sample_cpu(call.logits, call.batch_size, call.draft_to_target_ids, call.params,
                   call.uniforms, results.pointers(), torch_parallel());
  return results.tuple();
}

#if defined(HETERO_SPEC_WITH_CUDA)
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> draft_sample_on_cuda(
    const Tensor& draft_logits, const std::optional<Tensor>& draft_to_target_ids,
    const std::optional<Tensor>& temperature, const std::optional<Tensor>& top_k,
    const std::optional<Tensor>& top_p, const std::optional<Tensor>& min_p,
    double default_temperature, int64_t default_top_k, double default_top_p, double default_min_p,
    const std::optional<Tensor>& seeds, const std::optional<Tensor>& positions,
    const std::optional<Tensor>& uniform_samples) {
  const torch::stable::accelerator::DeviceGuard guard(draft_logits.get_device_index());
  const Call call = checked(draft_logits, draft_to_target_ids,
                            {temperature, top_k, top_p, min_p, default_temperature, default_top_k,
                             default_top_p, default_min_p},
                            seeds, positions, uniform_samples);
  Results results(draft_logits, call.batch_size);
  const DraftSampleOutputs out = results.pointers();
  const DraftSampleCuda cuda{device_logits(call.logits),
                             call.batch_size,
                             call.draft_to_target_ids,
                             call.params,
                             call.uniforms.samples,
                             call.uniforms.seeds,
                             call.uniforms.positions,
                             out.target_token_ids,
                             out.draft_token_ids,
                             out.probs,
                             out.stats,
                             out.entropy,
                             out.max_prob};
  Tensor workspace = new_workspace(draft_logits, draft_sample_cuda_workspace(cuda));
  check_launch(draft_sample_cuda(cuda, workspace.mutable_data_ptr(), current_stream(draft_logits)),
               kOp);
  return results.tuple();
}
#endif

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CPU, m) { m.impl("draft_sample", TORCH_BOX(&draft_sample)); }
#if defined(HETERO_SPEC_WITH_CUDA)
STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CUDA, m) {
  m.impl("draft_sample", TORCH_BOX(&draft_sample_on_cuda));
}
#endif

}  // namespace hetero_spec
