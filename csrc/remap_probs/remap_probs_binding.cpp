// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/stable/library.h>

#include "common/torch/arguments.h"
#include "remap_probs/remap_probs.h"
#if defined(HETERO_SPEC_WITH_CUDA)
#include "common/torch/cuda.h"
#include "remap_probs/remap_probs_cuda.h"
#endif

namespace hetero_spec {
namespace {

constexpr const char* kOp = "remap_probs";

struct Call {
  LogitMatrix logits;
  int64_t num_rows;
  const int32_t* draft_to_target_ids;
  int64_t target_vocab_size;
  SamplingParams params;
};

Call checked(const Tensor& draft_logits, const Tensor& draft_to_target_ids,
             int64_t target_vocab_size, const SamplingTensors& params) {
  const LogitMatrix matrix = logit_matrix(draft_logits, kOp, "draft_logits");
  const int64_t rows = draft_logits.size(0);
  check_dense(draft_to_target_ids, ScalarType::Int, {draft_logits.size(1)}, kOp,
              "draft_to_target_ids");
  check_same_device(draft_to_target_ids, draft_logits, kOp, "draft_to_target_ids");
  STD_TORCH_CHECK(target_vocab_size >= 1, kOp, ": target_vocab_size must be >= 1, got ",
                  target_vocab_size);
  return {matrix, rows, static_cast<const int32_t*>(draft_to_target_ids.const_data_ptr()),
          target_vocab_size, sampling_params(params, rows, draft_logits, kOp)};
}

Tensor remap_probs(const Tensor& draft_logits, const Tensor& draft_to_target_ids,
                   int64_t target_vocab_size, const std::optional<Tensor>& temperature,
                   const std::optional<Tensor>& top_k, const std::optional<Tensor>& top_p,
                   const std::optional<Tensor>& min_p, double default_temperature,
                   int64_t default_top_k, double default_top_p, double default_min_p) {
  const Call call = checked(draft_logits, draft_to_target_ids, target_vocab_size,
                            {temperature, top_k, top_p, min_p, default_temperature, default_top_k,
                             default_top_p, default_min_p});
  Tensor probs = new_tensor(draft_logits, {call.num_rows, target_vocab_size}, ScalarType::Float);
  remap_probs_cpu(call.logits, call.num_rows, call.draft_to_target_ids, target_vocab_size,
                  call.params, static_cast<float*>(probs.mutable_data_ptr()), torch_parallel());
  return probs;
}

#if defined(HETERO_SPEC_WITH_CUDA)
Tensor remap_probs_on_cuda(const Tensor& draft_logits, const Tensor& draft_to_target_ids,
                           int64_t target_vocab_size, const std::optional<Tensor>& temperature,
                           const std::optional<Tensor>& top_k, const std::optional<Tensor>& top_p,
                           const std::optional<Tensor>& min_p, double default_temperature,
                           int64_t default_top_k, double default_top_p, double default_min_p) {
  const torch::stable::accelerator::DeviceGuard guard(draft_logits.get_device_index());
  const Call call = checked(draft_logits, draft_to_target_ids, target_vocab_size,
                            {temperature, top_k, top_p, min_p, default_temperature, default_top_k,
                             default_top_p, default_min_p});
  Tensor probs = new_tensor(draft_logits, {call.num_rows, target_vocab_size}, ScalarType::Float);
  const RemapProbsCuda cuda{
      device_logits(call.logits), call.num_rows, call.draft_to_target_ids,
      target_vocab_size,          call.params,   static_cast<float*>(probs.mutable_data_ptr())};
  Tensor workspace = new_workspace(draft_logits, remap_probs_cuda_workspace(cuda));
  check_launch(remap_probs_cuda(cuda, workspace.mutable_data_ptr(), current_stream(draft_logits)),
               kOp);
  return probs;
}
#endif

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CPU, m) { m.impl("remap_probs", TORCH_BOX(&remap_probs)); }
#if defined(HETERO_SPEC_WITH_CUDA)
STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CUDA, m) {
  m.impl("remap_probs", TORCH_BOX(&remap_probs_on_cuda));
}
#endif

}  // namespace hetero_spec
