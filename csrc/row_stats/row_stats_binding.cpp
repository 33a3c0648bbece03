// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/stable/library.h>

#include "common/torch/arguments.h"
#include "row_stats/row_stats.h"

namespace hetero_spec {
namespace {

constexpr const char* kOp = "row_stats";

Tensor row_stats(const Tensor& logits, const std::optional<Tensor>& draft_to_target_ids,
                 const std::optional<Tensor>& temperature, const std::optional<Tensor>& top_k,
                 const std::optional<Tensor>& top_p, const std::optional<Tensor>& min_p,
                 double default_temperature, int64_t default_top_k, double default_top_p,
                 double default_min_p) {
  const LogitMatrix matrix = logit_matrix(logits, kOp, "logits");
  const int64_t rows = logits.size(0);
  const SamplingParams params =
      sampling_params({temperature, top_k, top_p, min_p, default_temperature, default_top_k,
                       default_top_p, default_min_p},
                      rows, logits, kOp);
  const int32_t* map = optional_data<int32_t>(draft_to_target_ids, ScalarType::Int,
                                              {logits.size(1)}, logits, kOp, "draft_to_target_ids");
  Tensor stats = new_tensor(logits, {rows, 4}, ScalarType::Float);
  row_stats_cpu(matrix, rows, map, params, static_cast<RowStats*>(stats.mutable_data_ptr()),
                torch_parallel());
  return stats;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CPU, m) { m.impl("row_stats", TORCH_BOX(&row_stats)); }

}  // namespace hetero_spec
