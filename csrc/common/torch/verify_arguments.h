// SPDX-License-Identifier: Apache-2.0
// What the two rejection-sampling bindings share.
#pragma once

#include <tuple>

#include "common/cpu/verify_cpu.h"
#include "common/torch/arguments.h"

namespace hetero_spec {

inline Rule verify_rule(int64_t rule, const char* op) {
  STD_TORCH_CHECK(rule == 0 || rule == 1, op, ": rule must be 0 (token) or 1 (block), got ", rule);
  return static_cast<Rule>(rule);
}

// Allocates output_token_ids, num_accepted_tokens and status, and lets `run` fill them.
template <class F>
std::tuple<Tensor, Tensor, Tensor> with_verify_outputs(const Ragged& ragged, const Tensor& like,
                                                       F run) {
  Tensor output_token_ids =
      new_tensor(like, {ragged.batch_size, ragged.max_draft_tokens + 1}, ScalarType::Int);
  Tensor num_accepted_tokens = new_tensor(like, {ragged.batch_size}, ScalarType::Int);
  Tensor status = new_tensor(like, {ragged.batch_size}, ScalarType::Int);
  run({static_cast<int32_t*>(output_token_ids.mutable_data_ptr()),
       static_cast<int32_t*>(num_accepted_tokens.mutable_data_ptr()),
       static_cast<int32_t*>(status.mutable_data_ptr())});
  return {output_token_ids, num_accepted_tokens, status};
}

}  // namespace hetero_spec
