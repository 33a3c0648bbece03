// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/stable/library.h>

#include <vector>

#include "common/torch/arguments.h"
#include "common/torch/rdk_arguments.h"
#include "rdk_redistribute/rdk_redistribute.h"
#if defined(HETERO_SPEC_WITH_CUDA)
#include "common/torch/cuda.h"
#include "rdk_redistribute/rdk_redistribute_cuda.h"
#endif

namespace hetero_spec {
namespace {

constexpr const char* kOp = "rdk_redistribute";

RdkRedistribute checked(const Tensor& draft_probs, const KernelTensors& kernel) {
  check_logits(draft_probs, kOp, "draft_probs");
  STD_TORCH_CHECK(draft_probs.scalar_type() == ScalarType::Float, kOp,
                  ": draft_probs must be float32, got dtype ",
                  static_cast<int>(draft_probs.scalar_type()));
  STD_TORCH_CHECK(kernel.is_given(), kOp, ": kernel must be a mixture or factors, got neither");
  RdkRedistribute out{};
  out.draft_probs = static_cast<const float*>(draft_probs.const_data_ptr());
  out.row_stride = draft_probs.stride(0);
  out.num_rows = draft_probs.size(0);
  out.vocab_size = draft_probs.size(1);
  out.kernel = rdk_kernel(kernel, out.vocab_size, draft_probs, kOp);
  return out;
}

Tensor rdk_redistribute(const Tensor& draft_probs, const std::vector<Tensor>& kernel,
                        int64_t kernel_parts, double constant_leak,
                        const std::optional<Tensor>& factors, double scale, double lam) {
  RdkRedistribute call =
      checked(draft_probs, {kernel, kernel_parts, constant_leak, factors, scale, lam});
  Tensor probs = new_tensor(draft_probs, {call.num_rows, call.vocab_size}, ScalarType::Float);
  call.probs = static_cast<float*>(probs.mutable_data_ptr());
  rdk_redistribute_cpu(call, torch_parallel());
  return probs;
}

#if defined(HETERO_SPEC_WITH_CUDA)
Tensor rdk_redistribute_on_cuda(const Tensor& draft_probs, const std::vector<Tensor>& kernel,
                                int64_t kernel_parts, double constant_leak,
                                const std::optional<Tensor>& factors, double scale, double lam) {
  const torch::stable::accelerator::DeviceGuard guard(draft_probs.get_device_index());
  RdkRedistribute call =
      checked(draft_probs, {kernel, kernel_parts, constant_leak, factors, scale, lam});
  Tensor probs = new_tensor(draft_probs, {call.num_rows, call.vocab_size}, ScalarType::Float);
  call.probs = static_cast<float*>(probs.mutable_data_ptr());
  Tensor workspace = new_workspace(draft_probs, rdk_redistribute_cuda_workspace(call));
  check_launch(
      rdk_redistribute_cuda(call, workspace.mutable_data_ptr(), current_stream(draft_probs)), kOp);
  return probs;
}
#endif

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CPU, m) {
  m.impl("rdk_redistribute", TORCH_BOX(&rdk_redistribute));
}
#if defined(HETERO_SPEC_WITH_CUDA)
STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CUDA, m) {
  m.impl("rdk_redistribute", TORCH_BOX(&rdk_redistribute_on_cuda));
}
#endif

}  // namespace hetero_spec
