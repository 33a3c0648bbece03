// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/stable/library.h>

#include "common/torch/arguments.h"
#include "remap_probs/remap_probs.h"

namespace hetero_spec {
namespace {

constexpr const char* kOp = "remap_probs";

Tensor remap_probs(const Tensor& draft_logits, const Tensor& draft_to_target_ids,
                   int64_t target_vocab_size, const std::optional<Tensor>& temperature,
                   const std::optional<Tensor>& top_k, const std::optional<Tensor>& top_p,
                   const std::optional<Tensor>& min_p, double default_temperature,
                   int64_t default_top_k, double default_top_p, double default_min_p) {
  const LogitMatrix matrix = logit_matrix(draft_logits, kOp, "draft_logits");
  const int64_t rows = draft_logits.size(0);
  const SamplingParams params =
      sampling_params({temperature, top_k, top_p, min_p, default_temperature, default_top_k,
                       default_top_p, default_min_p},
                      rows, draft_logits, kOp);
  check_dense(draft_to_target_ids, ScalarType::Int, {draft_logits.size(1)}, kOp,
              "draft_to_target_ids");
  check_same_device(draft_to_target_ids, draft_logits, kOp, "draft_to_target_ids");
  STD_TORCH_CHECK(target_vocab_size >= 1, kOp, ": target_vocab_size must be >= 1, got ",
                  target_vocab_size);
  Tensor probs = new_tensor(draft_logits, {rows, target_vocab_size}, ScalarType::Float);
  remap_probs_cpu(matrix, rows, static_cast<const int32_t*>(draft_to_target_ids.const_data_ptr()),
                  target_vocab_size, params, static_cast<float*>(probs.mutable_data_ptr()),
                  torch_parallel());
  return probs;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CPU, m) { m.impl("remap_probs", TORCH_BOX(&remap_probs)); }

}  // namespace hetero_spec
