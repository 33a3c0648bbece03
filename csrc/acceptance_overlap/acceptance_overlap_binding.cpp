// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/stable/library.h>

#include "acceptance_overlap/acceptance_overlap.h"
#include "common/torch/arguments.h"

namespace hetero_spec {
namespace {

constexpr const char* kOp = "acceptance_overlap";

Tensor acceptance_overlap(const Tensor& target_logits, const Tensor& draft_logits,
                          const std::optional<Tensor>& draft_stats,
                          const std::optional<Tensor>& target_to_draft_ids,
                          const std::optional<Tensor>& temperature,
                          const std::optional<Tensor>& top_k, const std::optional<Tensor>& top_p,
                          const std::optional<Tensor>& min_p, double default_temperature,
                          int64_t default_top_k, double default_top_p, double default_min_p) {
  const LogitMatrix target = logit_matrix(target_logits, kOp, "target_logits");
  const LogitMatrix draft = logit_matrix(draft_logits, kOp, "draft_logits");
  check_same_device(draft_logits, target_logits, kOp, "draft_logits");
  const int64_t rows = target_logits.size(0);
  STD_TORCH_CHECK(draft_logits.size(0) == rows, kOp, ": draft_logits must have ", rows,
                  " rows, got ", draft_logits.size(0));
  const SamplingParams params =
      sampling_params({temperature, top_k, top_p, min_p, default_temperature, default_top_k,
                       default_top_p, default_min_p},
                      rows, target_logits, kOp);
  const int32_t* map =
      optional_data<int32_t>(target_to_draft_ids, ScalarType::Int, {target_logits.size(1)},
                             target_logits, kOp, "target_to_draft_ids");
  STD_TORCH_CHECK(map || draft.vocab_size == target.vocab_size, kOp, ": draft_logits must be ",
                  target.vocab_size, " ids wide without target_to_draft_ids, got ",
                  draft.vocab_size);
  const RowStats* stats = optional_data<RowStats>(draft_stats, ScalarType::Float, {rows, 4},
                                                  target_logits, kOp, "draft_stats");
  Tensor overlap = new_tensor(target_logits, {rows}, ScalarType::Float);
  acceptance_overlap_cpu(target, draft, rows, stats, map, params,
                         static_cast<float*>(overlap.mutable_data_ptr()), torch_parallel());
  return overlap;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CPU, m) {
  m.impl("acceptance_overlap", TORCH_BOX(&acceptance_overlap));
}

}  // namespace hetero_spec
