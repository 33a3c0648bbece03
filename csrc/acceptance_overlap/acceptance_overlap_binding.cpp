// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/stable/library.h>

#include <vector>

#include "acceptance_overlap/acceptance_overlap.h"
#include "common/torch/arguments.h"
#include "common/torch/rdk_arguments.h"
#if defined(HETERO_SPEC_WITH_CUDA)
#include "acceptance_overlap/acceptance_overlap_cuda.h"
#include "common/torch/cuda.h"
#endif

namespace hetero_spec {
namespace {

constexpr const char* kOp = "acceptance_overlap";

struct Call {
  LogitMatrix target_logits;
  LogitMatrix draft_logits;
  int64_t num_rows;
  const RowStats* draft_stats;
  const int32_t* target_to_draft_ids;
  RdkKernel kernel;
  SamplingParams params;
};

Call checked(const Tensor& target_logits, const Tensor& draft_logits,
             const std::optional<Tensor>& draft_stats,
             const std::optional<Tensor>& target_to_draft_ids, const SamplingTensors& params,
             const KernelTensors& kernel) {
  Call out{};
  out.target_logits = logit_matrix(target_logits, kOp, "target_logits");
  out.draft_logits = logit_matrix(draft_logits, kOp, "draft_logits");
  check_same_device(draft_logits, target_logits, kOp, "draft_logits");
  out.num_rows = target_logits.size(0);
  STD_TORCH_CHECK(draft_logits.size(0) == out.num_rows, kOp, ": draft_logits must have ",
                  out.num_rows, " rows, got ", draft_logits.size(0));
  out.params = sampling_params(params, out.num_rows, target_logits, kOp);
  out.target_to_draft_ids =
      optional_data<int32_t>(target_to_draft_ids, ScalarType::Int, {target_logits.size(1)},
                             target_logits, kOp, "target_to_draft_ids");
  STD_TORCH_CHECK(target_to_draft_ids.has_value() ||
                      out.draft_logits.vocab_size == out.target_logits.vocab_size,
                  kOp, ": draft_logits must be ", out.target_logits.vocab_size,
                  " ids wide without target_to_draft_ids, got ", out.draft_logits.vocab_size);
  out.draft_stats = optional_data<RowStats>(draft_stats, ScalarType::Float, {out.num_rows, 4},
                                            target_logits, kOp, "draft_stats");
  out.kernel = rdk_kernel(kernel, target_logits.size(1), target_logits, kOp);
  return out;
}

Tensor acceptance_overlap(const Tensor& target_logits, const Tensor& draft_logits,
                          const std::optional<Tensor>& draft_stats,
                          const std::optional<Tensor>& target_to_draft_ids,
                          const std::optional<Tensor>& temperature,
                          const std::optional<Tensor>& top_k, const std::optional<Tensor>& top_p,
                          const std::optional<Tensor>& min_p, double default_temperature,
                          int64_t default_top_k, double default_top_p, double default_min_p,
                          const std::vector<Tensor>& kernel, int64_t kernel_parts,
                          double constant_leak, const std::optional<Tensor>& factors, double scale,
                          double lam) {
  const Call call = checked(target_logits, draft_logits, draft_stats, target_to_draft_ids,
                            {temperature, top_k, top_p, min_p, default_temperature, default_top_k,
                             default_top_p, default_min_p},
                            {kernel, kernel_parts, constant_leak, factors, scale, lam});
  Tensor overlap = new_tensor(target_logits, {call.num_rows}, ScalarType::Float);
  acceptance_overlap_cpu(call.target_logits, call.draft_logits, call.num_rows, call.draft_stats,
                         call.target_to_draft_ids, call.kernel, call.params,
                         static_cast<float*>(overlap.mutable_data_ptr()), torch_parallel());
  return overlap;
}

#if defined(HETERO_SPEC_WITH_CUDA)
Tensor acceptance_overlap_on_cuda(
    const Tensor& target_logits, const Tensor& draft_logits,
    const std::optional<Tensor>& draft_stats, const std::optional<Tensor>& target_to_draft_ids,
    const std::optional<Tensor>& temperature, const std::optional<Tensor>& top_k,
    const std::optional<Tensor>& top_p, const std::optional<Tensor>& min_p,
    double default_temperature, int64_t default_top_k, double default_top_p, double default_min_p,
    const std::vector<Tensor>& kernel, int64_t kernel_parts, double constant_leak,
    const std::optional<Tensor>& factors, double scale, double lam) {
  const torch::stable::accelerator::DeviceGuard guard(target_logits.get_device_index());
  const Call call = checked(target_logits, draft_logits, draft_stats, target_to_draft_ids,
                            {temperature, top_k, top_p, min_p, default_temperature, default_top_k,
                             default_top_p, default_min_p},
                            {kernel, kernel_parts, constant_leak, factors, scale, lam});
  Tensor overlap = new_tensor(target_logits, {call.num_rows}, ScalarType::Float);
  const AcceptanceOverlapCuda cuda{device_logits(call.target_logits),
                                   device_logits(call.draft_logits),
                                   call.num_rows,
                                   call.draft_stats,
                                   call.target_to_draft_ids,
                                   call.kernel,
                                   call.params,
                                   static_cast<float*>(overlap.mutable_data_ptr())};
  Tensor workspace = new_workspace(target_logits, acceptance_overlap_cuda_workspace(cuda));
  check_launch(
      acceptance_overlap_cuda(cuda, workspace.mutable_data_ptr(), current_stream(target_logits)),
      kOp);
  return overlap;
}
#endif

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CPU, m) {
  m.impl("acceptance_overlap", TORCH_BOX(&acceptance_overlap));
}
#if defined(HETERO_SPEC_WITH_CUDA)
STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CUDA, m) {
  m.impl("acceptance_overlap", TORCH_BOX(&acceptance_overlap_on_cuda));
}
#endif

}  // namespace hetero_spec
