// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/stable/library.h>

#include <tuple>
#include <vector>

#include "common/torch/rdk_arguments.h"
#include "common/torch/verify_arguments.h"
#include "rejection_sample/rejection_sample.h"
#if defined(HETERO_SPEC_WITH_CUDA)
#include "common/torch/cuda.h"
#include "rejection_sample/rejection_sample_cuda.h"
#endif

namespace hetero_spec {
namespace {

constexpr const char* kOp = "rejection_sample";

// The schema's arguments but the sampling parameters.
struct Arguments {
  const Tensor& target_logits;
  const Tensor& draft_token_ids;
  const Tensor& cu_num_draft_tokens;
  int64_t max_draft_tokens;
  const std::optional<Tensor>& draft_logits;
  const std::optional<Tensor>& draft_stats;
  const std::optional<Tensor>& target_to_draft_ids;
  const std::optional<Tensor>& seeds;
  const std::optional<Tensor>& positions;
  const std::optional<Tensor>& uniform_samples;
  KernelTensors kernel;
  const std::optional<Tensor>& draft_leaked_mass;
  int64_t rule;
};

struct Call {
  Ragged ragged;
  bool has_draft_logits;  // false: one-hot drafts
  LogitMatrix draft_logits;
  RejectionSampleInputs inputs;
};

Call checked(const Arguments& in, const SamplingTensors& params) {
  Call out{};
  RejectionSampleInputs& inputs = out.inputs;
  inputs.target_logits = logit_matrix(in.target_logits, kOp, "target_logits");
  out.ragged = ragged_batch(in.draft_token_ids, in.cu_num_draft_tokens, in.max_draft_tokens,
                            in.target_logits, kOp);
  inputs.params = sampling_params(params, out.ragged.batch_size, in.target_logits, kOp);
  inputs.uniforms = verify_uniforms(in.seeds, in.positions, in.uniform_samples, out.ragged,
                                    in.target_logits, kOp);
  inputs.rule = verify_rule(in.rule, kOp);
  inputs.target_to_draft_ids =
      optional_data<int32_t>(in.target_to_draft_ids, ScalarType::Int, {in.target_logits.size(1)},
                             in.target_logits, kOp, "target_to_draft_ids");
  STD_TORCH_CHECK(in.draft_logits.has_value() || !in.kernel.is_given(), kOp,
                  ": kernel must be given together with draft_logits, got it alone");
  out.has_draft_logits = in.draft_logits.has_value();
  if (!out.has_draft_logits) return out;
  out.draft_logits = logit_matrix(*in.draft_logits, kOp, "draft_logits");
  check_same_device(*in.draft_logits, in.target_logits, kOp, "draft_logits");
  STD_TORCH_CHECK(in.draft_logits->size(0) == out.ragged.num_tokens, kOp,
                  ": draft_logits must be [", out.ragged.num_tokens, ", Vd], got ",
                  shape_of(*in.draft_logits));
  STD_TORCH_CHECK(in.target_to_draft_ids.has_value() ||
                      out.draft_logits.vocab_size == inputs.target_logits.vocab_size,
                  kOp, ": draft_logits must be ", inputs.target_logits.vocab_size,
                  " ids wide without target_to_draft_ids, got ", out.draft_logits.vocab_size);
  inputs.draft_stats =
      optional_data<RowStats>(in.draft_stats, ScalarType::Float, {out.ragged.num_tokens, 4},
                              in.target_logits, kOp, "draft_stats");
  inputs.kernel = rdk_kernel(in.kernel, in.target_logits.size(1), in.target_logits, kOp);
  inputs.draft_leaked_mass =
      kept_of_rows(in.draft_leaked_mass, inputs.kernel, out.ragged.num_tokens, in.target_logits,
                   kOp, "draft_leaked_mass");
  return out;
}

using Run = void (*)(Call& call, const Tensor& target_logits, const VerifyOutputs& outputs);

void run_on_cpu(Call& call, const Tensor&, const VerifyOutputs& outputs) {
  if (call.has_draft_logits) call.inputs.draft_logits = &call.draft_logits;
  rejection_sample_cpu(call.ragged, call.inputs, outputs, torch_parallel());
}

#if defined(HETERO_SPEC_WITH_CUDA)
void run_on_cuda(Call& call, const Tensor& target_logits, const VerifyOutputs& outputs) {
  const torch::stable::accelerator::DeviceGuard guard(target_logits.get_device_index());
  const RejectionSampleCuda cuda{call.ragged,
                                 device_logits(call.inputs.target_logits),
                                 device_logits(call.draft_logits),
                                 call.inputs.draft_stats,
                                 call.inputs.target_to_draft_ids,
                                 call.inputs.kernel,
                                 call.inputs.draft_leaked_mass,
                                 call.inputs.params,
                                 call.inputs.uniforms,
                                 call.inputs.rule == Rule::kBlock,
                                 outputs.output_token_ids,
                                 outputs.num_accepted_tokens,
                                 outputs.status};
  Tensor workspace = new_workspace(target_logits, rejection_sample_cuda_workspace(cuda));
  check_launch(
      rejection_sample_cuda(cuda, workspace.mutable_data_ptr(), current_stream(target_logits)),
      kOp);
}
#endif

template <Run run>
std::tuple<Tensor, Tensor, Tensor> rejection_sample(
    const Tensor& target_logits, const Tensor& draft_token_ids, const Tensor& cu_num_draft_tokens,
    int64_t max_draft_tokens, const std::optional<Tensor>& draft_logits,
    const std::optional<Tensor>& draft_stats, const std::optional<Tensor>& target_to_draft_ids,
    const std::optional<Tensor>& temperature, const std::optional<Tensor>& top_k,
    const std::optional<Tensor>& top_p, const std::optional<Tensor>& min_p,
    double default_temperature, int64_t default_top_k, double default_top_p, double default_min_p,
    const std::optional<Tensor>& seeds, const std::optional<Tensor>& positions,
    const std::optional<Tensor>& uniform_samples, const std::vector<Tensor>& kernel,
    int64_t kernel_parts, double constant_leak, const std::optional<Tensor>& factors, double scale,
    double lam, const std::optional<Tensor>& draft_leaked_mass, int64_t rule) {
  Call call = checked({target_logits,
                       draft_token_ids,
                       cu_num_draft_tokens,
                       max_draft_tokens,
                       draft_logits,
                       draft_stats,
                       target_to_draft_ids,
                       seeds,
                       positions,
                       uniform_samples,
                       {kernel, kernel_parts, constant_leak, factors, scale, lam},
                       draft_leaked_mass,
                       rule},
                      {temperature, top_k, top_p, min_p, default_temperature, default_top_k,
                       default_top_p, default_min_p});
  const VerifyTensors results = new_results(call.ragged, target_logits);
  run(call, target_logits, results.pointers());
  return results.tuple();
}

template <Run run>
void rejection_sample_out(
    const Tensor& target_logits, const Tensor& draft_token_ids, const Tensor& cu_num_draft_tokens,
    int64_t max_draft_tokens, const std::optional<Tensor>& draft_logits,
    const std::optional<Tensor>& draft_stats, const std::optional<Tensor>& target_to_draft_ids,
    const std::optional<Tensor>& temperature, const std::optional<Tensor>& top_k,
    const std::optional<Tensor>& top_p, const std::optional<Tensor>& min_p,
    double default_temperature, int64_t default_top_k, double default_top_p, double default_min_p,
    const std::optional<Tensor>& seeds, const std::optional<Tensor>& positions,
    const std::optional<Tensor>& uniform_samples, const std::vector<Tensor>& kernel,
    int64_t kernel_parts, double constant_leak, const std::optional<Tensor>& factors, double scale,
    double lam, const std::optional<Tensor>& draft_leaked_mass, int64_t rule,
    const Tensor& output_token_ids, const Tensor& num_accepted_tokens, const Tensor& status) {
  Call call = checked({target_logits,
                       draft_token_ids,
                       cu_num_draft_tokens,
                       max_draft_tokens,
                       draft_logits,
                       draft_stats,
                       target_to_draft_ids,
                       seeds,
                       positions,
                       uniform_samples,
                       {kernel, kernel_parts, constant_leak, factors, scale, lam},
                       draft_leaked_mass,
                       rule},
                      {temperature, top_k, top_p, min_p, default_temperature, default_top_k,
                       default_top_p, default_min_p});
  const VerifyTensors results = checked_results({output_token_ids, num_accepted_tokens, status},
                                                call.ragged, target_logits, kOp);
  run(call, target_logits, results.pointers());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CPU, m) {
  m.impl("rejection_sample", TORCH_BOX(&rejection_sample<run_on_cpu>));
  m.impl("rejection_sample.out", TORCH_BOX(&rejection_sample_out<run_on_cpu>));
}
#if defined(HETERO_SPEC_WITH_CUDA)
STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CUDA, m) {
  m.impl("rejection_sample", TORCH_BOX(&rejection_sample<run_on_cuda>));
  m.impl("rejection_sample.out", TORCH_BOX(&rejection_sample_out<run_on_cuda>));
}
#endif

}  // namespace hetero_spec
