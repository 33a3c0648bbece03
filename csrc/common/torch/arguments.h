// SPDX-License-Identifier: Apache-2.0
// From checked tensors to the plain structs that kernels take; shared by the bindings.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <optional>

#include "common/cpu/row_law_cpu.h"
#include "common/ragged.h"
#include "common/sampling_params.h"
#include "common/torch/checks.h"
#include "common/uniforms.h"

namespace hetero_spec {

// Where the sampling parameters stand in a schema.
struct SamplingTensors {
  const std::optional<Tensor>& temperature;
  const std::optional<Tensor>& top_k;
  const std::optional<Tensor>& top_p;
  const std::optional<Tensor>& min_p;
  double default_temperature;
  int64_t default_top_k;
  double default_top_p;
  double default_min_p;
};

inline SamplingParams sampling_params(const SamplingTensors& in, int64_t batch_size,
                                      const Tensor& logits, const char* op) {
  SamplingParams out{};
  out.temperature = optional_data<float>(in.temperature, ScalarType::Float, {batch_size}, logits,
                                         op, "temperature");
  out.top_k = optional_data<int32_t>(in.top_k, ScalarType::Int, {batch_size}, logits, op, "top_k");
  out.top_p = optional_data<float>(in.top_p, ScalarType::Float, {batch_size}, logits, op, "top_p");
  out.min_p = optional_data<float>(in.min_p, ScalarType::Float, {batch_size}, logits, op, "min_p");
  out.default_temperature = static_cast<float>(in.default_temperature);
  // Past int32 no vocabulary is that large: the same as off.
  out.default_top_k = in.default_top_k > INT32_MAX ? 0 : static_cast<int32_t>(in.default_top_k);
  out.default_top_p = static_cast<float>(in.default_top_p);
  out.default_min_p = static_cast<float>(in.default_min_p);
  return out;
}

inline LogitMatrix logit_matrix(const Tensor& logits, const char* op, const char* argument) {
  check_logits(logits, op, argument);
  return unmasked(logits.const_data_ptr(), dtype_of(logits, op, argument), logits.stride(0),
                  logits.size(1));
}

inline Ragged ragged_batch(const Tensor& draft_token_ids, const Tensor& cu_num_draft_tokens,
                           int64_t max_draft_tokens, const Tensor& target, const char* op) {
  check_dense(draft_token_ids, ScalarType::Int, {-1}, op, "draft_token_ids");
  check_dense(cu_num_draft_tokens, ScalarType::Int, {-1}, op, "cu_num_draft_tokens");
  check_same_device(draft_token_ids, target, op, "draft_token_ids");
  check_same_device(cu_num_draft_tokens, target, op, "cu_num_draft_tokens");
  STD_TORCH_CHECK(cu_num_draft_tokens.size(0) >= 1, op,
                  ": cu_num_draft_tokens must be [B + 1], got [0]");
  STD_TORCH_CHECK(max_draft_tokens >= 0, op, ": max_draft_tokens must be >= 0, got ",
                  max_draft_tokens);
  const int64_t batch_size = cu_num_draft_tokens.size(0) - 1;
  STD_TORCH_CHECK(target.size(0) == draft_token_ids.size(0) + batch_size, op,
                  ": the target's rows must be one per draft token and one per request, ",
                  draft_token_ids.size(0) + batch_size, ", got ", target.size(0));
  return {static_cast<const int32_t*>(cu_num_draft_tokens.const_data_ptr()),
          static_cast<const int32_t*>(draft_token_ids.const_data_ptr()), batch_size,
          draft_token_ids.size(0), max_draft_tokens};
}

inline Uniforms verify_uniforms(const std::optional<Tensor>& seeds,
                                const std::optional<Tensor>& positions,
                                const std::optional<Tensor>& uniform_samples, const Ragged& ragged,
                                const Tensor& target, const char* op) {
  Uniforms out{};
  out.samples = optional_data<double>(uniform_samples, ScalarType::Double, {target.size(0), 2},
                                      target, op, "uniform_samples");
  out.seeds =
      optional_data<int64_t>(seeds, ScalarType::Long, {ragged.batch_size}, target, op, "seeds");
  out.positions = optional_data<int64_t>(positions, ScalarType::Long, {ragged.batch_size}, target,
                                         op, "positions");
  // Asked of the arguments, not of the pointers: those are null for an empty batch.
  STD_TORCH_CHECK(uniform_samples.has_value() || (seeds.has_value() && positions.has_value()), op,
                  ": uniform_samples must be given, or seeds and positions, got neither");
  return out;
}

inline Tensor new_tensor(const Tensor& like, std::initializer_list<int64_t> shape,
                         ScalarType dtype) {
  return torch::stable::new_empty(
      like, torch::headeronly::IntHeaderOnlyArrayRef(shape.begin(), shape.size()), dtype);
}

// Kernels run their tasks on torch's own threads.
inline Parallel torch_parallel() {
  return {[](int64_t size, int64_t grain, void* task, Parallel::Body body) {
    torch::stable::parallel_for(0, size, grain,
                                [=](int64_t begin, int64_t end) { body(task, begin, end); });
  }};
}

}  // namespace hetero_spec
