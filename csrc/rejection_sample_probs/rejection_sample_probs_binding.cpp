// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/stable/library.h>

#include <tuple>

#include "common/torch/verify_arguments.h"
#include "rejection_sample_probs/rejection_sample_probs.h"
#if defined(HETERO_SPEC_WITH_CUDA)
#include "common/torch/cuda.h"
#include "rejection_sample_probs/rejection_sample_probs_cuda.h"
#endif

namespace hetero_spec {
namespace {

constexpr const char* kOp = "rejection_sample_probs";

LogitMatrix prob_matrix(const Tensor& probs, const char* argument) {
  STD_TORCH_CHECK(probs.scalar_type() == ScalarType::Float, kOp, ": ", argument,
                  " must be float32, got dtype ", static_cast<int>(probs.scalar_type()));
  return logit_matrix(probs, kOp, argument);
}

// The schema's arguments.
struct Arguments {
  const Tensor& target_probs;
  const std::optional<Tensor>& draft_probs;
  const Tensor& draft_token_ids;
  const Tensor& cu_num_draft_tokens;
  int64_t max_draft_tokens;
  const std::optional<Tensor>& seeds;
  const std::optional<Tensor>& positions;
  const std::optional<Tensor>& uniform_samples;
  int64_t rule;
};

struct Call {
  Ragged ragged;
  bool has_draft_probs;  // false: one-hot drafts
  LogitMatrix draft_probs;
  RejectionSampleProbsInputs inputs;
};

Call checked(const Arguments& in) {
  Call out{};
  RejectionSampleProbsInputs& inputs = out.inputs;
  inputs.target_probs = prob_matrix(in.target_probs, "target_probs");
  out.ragged = ragged_batch(in.draft_token_ids, in.cu_num_draft_tokens, in.max_draft_tokens,
                            in.target_probs, kOp);
  inputs.uniforms =
      verify_uniforms(in.seeds, in.positions, in.uniform_samples, out.ragged, in.target_probs, kOp);
  inputs.rule = verify_rule(in.rule, kOp);
  out.has_draft_probs = in.draft_probs.has_value();
  if (!out.has_draft_probs) return out;
  out.draft_probs = prob_matrix(*in.draft_probs, "draft_probs");
  check_same_device(*in.draft_probs, in.target_probs, kOp, "draft_probs");
  STD_TORCH_CHECK(in.draft_probs->size(0) == out.ragged.num_tokens &&
                      in.draft_probs->size(1) == in.target_probs.size(1),
                  kOp, ": draft_probs must be [", out.ragged.num_tokens, ", ",
                  in.target_probs.size(1), "], got ", shape_of(*in.draft_probs));
  return out;
}

using Run = void (*)(Call& call, const Tensor& target_probs, const VerifyOutputs& outputs);

void run_on_cpu(Call& call, const Tensor&, const VerifyOutputs& outputs) {
  if (call.has_draft_probs) call.inputs.draft_probs = &call.draft_probs;
  rejection_sample_probs_cpu(call.ragged, call.inputs, outputs, torch_parallel());
}

#if defined(HETERO_SPEC_WITH_CUDA)
void run_on_cuda(Call& call, const Tensor& target_probs, const VerifyOutputs& outputs) {
  const torch::stable::accelerator::DeviceGuard guard(target_probs.get_device_index());
  const RejectionSampleProbsCuda cuda{call.ragged,
                                      device_logits(call.inputs.target_probs),
                                      device_logits(call.draft_probs),
                                      call.inputs.uniforms,
                                      call.inputs.rule == Rule::kBlock,
                                      outputs.output_token_ids,
                                      outputs.num_accepted_tokens,
                                      outputs.status};
  Tensor workspace = new_workspace(target_probs, rejection_sample_probs_cuda_workspace(cuda));
  check_launch(
      rejection_sample_probs_cuda(cuda, workspace.mutable_data_ptr(), current_stream(target_probs)),
      kOp);
}
#endif

template <Run run>
std::tuple<Tensor, Tensor, Tensor> rejection_sample_probs(
    const Tensor& target_probs, const std::optional<Tensor>& draft_probs,
    const Tensor& draft_token_ids, const Tensor& cu_num_draft_tokens, int64_t max_draft_tokens,
    const std::optional<Tensor>& seeds, const std::optional<Tensor>& positions,
    const std::optional<Tensor>& uniform_samples, int64_t rule) {
  Call call = checked({target_probs, draft_probs, draft_token_ids, cu_num_draft_tokens,
                       max_draft_tokens, seeds, positions, uniform_samples, rule});
  const VerifyTensors results = new_results(call.ragged, target_probs);
  run(call, target_probs, results.pointers());
  return results.tuple();
}

template <Run run>
void rejection_sample_probs_out(const Tensor& target_probs,
                                const std::optional<Tensor>& draft_probs,
                                const Tensor& draft_token_ids, const Tensor& cu_num_draft_tokens,
                                int64_t max_draft_tokens, const std::optional<Tensor>& seeds,
                                const std::optional<Tensor>& positions,
                                const std::optional<Tensor>& uniform_samples, int64_t rule,
                                const Tensor& output_token_ids, const Tensor& num_accepted_tokens,
                                const Tensor& status) {
  Call call = checked({target_probs, draft_probs, draft_token_ids, cu_num_draft_tokens,
                       max_draft_tokens, seeds, positions, uniform_samples, rule});
  const VerifyTensors results = checked_results({output_token_ids, num_accepted_tokens, status},
                                                call.ragged, target_probs, kOp);
  run(call, target_probs, results.pointers());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CPU, m) {
  m.impl("rejection_sample_probs", TORCH_BOX(&rejection_sample_probs<run_on_cpu>));
  m.impl("rejection_sample_probs.out", TORCH_BOX(&rejection_sample_probs_out<run_on_cpu>));
}
#if defined(HETERO_SPEC_WITH_CUDA)
STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CUDA, m) {
  m.impl("rejection_sample_probs", TORCH_BOX(&rejection_sample_probs<run_on_cuda>));
  m.impl("rejection_sample_probs.out", TORCH_BOX(&rejection_sample_probs_out<run_on_cuda>));
}
#endif

}  // namespace hetero_spec
