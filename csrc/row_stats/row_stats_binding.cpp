// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/stable/library.h>

#include "common/torch/arguments.h"
#include "row_stats/row_stats.h"
#if defined(HETERO_SPEC_WITH_CUDA)
#include "common/torch/cuda.h"
#include "row_stats/row_stats_cuda.h"
#endif

namespace hetero_spec {
namespace {

constexpr const char* kOp = "row_stats";

struct Call {
  LogitMatrix logits;
  int64_t num_rows;
  const int32_t* draft_to_target_ids;
  SamplingParams params;
};

Call checked(const Tensor& logits, const std::optional<Tensor>& draft_to_target_ids,
             const SamplingTensors& params) {
  const LogitMatrix matrix = logit_matrix(logits, kOp, "logits");
  return {matrix, logits.size(0),
          optional_data<int32_t>(draft_to_target_ids, ScalarType::Int, {logits.size(1)}, logits,
                                 kOp, "draft_to_target_ids"),
          sampling_params(params, logits.size(0), logits, kOp)};
}

Tensor row_stats(const Tensor& logits, const std::optional<Tensor>& draft_to_target_ids,
                 const std::optional<Tensor>& temperature, const std::optional<Tensor>& top_k,
                 const std::optional<Tensor>& top_p, const std::optional<Tensor>& min_p,
                 double default_temperature, int64_t default_top_k, double default_top_p,
                 double default_min_p) {
  const Call call = checked(logits, draft_to_target_ids,
                            {temperature, top_k, top_p, min_p, default_temperature, default_top_k,
                             default_top_p, default_min_p});
  Tensor stats = new_tensor(logits, {call.num_rows, 4}, ScalarType::Float);
  row_stats_cpu(call.logits, call.num_rows, call.draft_to_target_ids, call.params,
                static_cast<RowStats*>(stats.mutable_data_ptr()), torch_parallel());
  return stats;
}

#if defined(HETERO_SPEC_WITH_CUDA)
Tensor row_stats_on_cuda(const Tensor& logits, const std::optional<Tensor>& draft_to_target_ids,
                         const std::optional<Tensor>& temperature,
                         const std::optional<Tensor>& top_k, const std::optional<Tensor>& top_p,
                         const std::optional<Tensor>& min_p, double default_temperature,
                         int64_t default_top_k, double default_top_p, double default_min_p) {
  const torch::stable::accelerator::DeviceGuard guard(logits.get_device_index());
  const Call call = checked(logits, draft_to_target_ids,
                            {temperature, top_k, top_p, min_p, default_temperature, default_top_k,
                             default_top_p, default_min_p});
  Tensor stats = new_tensor(logits, {call.num_rows, 4}, ScalarType::Float);
  Tensor workspace =
      new_workspace(logits, row_stats_cuda_workspace(call.num_rows, call.logits.vocab_size,
                                                     call.draft_to_target_ids != nullptr));
  check_launch(row_stats_cuda(call.logits.data, call.logits.dtype, call.logits.row_stride,
                              call.num_rows, call.logits.vocab_size, call.draft_to_target_ids,
                              call.params, static_cast<RowStats*>(stats.mutable_data_ptr()),
                              workspace.mutable_data_ptr(), current_stream(logits)),
               kOp);
  return stats;
}
#endif

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CPU, m) { m.impl("row_stats", TORCH_BOX(&row_stats)); }
#if defined(HETERO_SPEC_WITH_CUDA)
STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CUDA, m) {
  m.impl("row_stats", TORCH_BOX(&row_stats_on_cuda));
}
#endif

}  // namespace hetero_spec
