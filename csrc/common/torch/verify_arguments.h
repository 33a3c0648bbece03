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

// The results of a verification: new tensors, or the caller's (the .out overloads).
struct VerifyTensors {
  Tensor output_token_ids, num_accepted_tokens, status;

  VerifyOutputs pointers() const {
    return {static_cast<int32_t*>(output_token_ids.mutable_data_ptr()),
            static_cast<int32_t*>(num_accepted_tokens.mutable_data_ptr()),
            static_cast<int32_t*>(status.mutable_data_ptr())};
  }
  std::tuple<Tensor, Tensor, Tensor> tuple() const {
    return {output_token_ids, num_accepted_tokens, status};
  }
};

inline VerifyTensors new_results(const Ragged& ragged, const Tensor& like) {
  return {new_tensor(like, {ragged.batch_size, ragged.max_draft_tokens + 1}, ScalarType::Int),
          new_tensor(like, {ragged.batch_size}, ScalarType::Int),
          new_tensor(like, {ragged.batch_size}, ScalarType::Int)};
}

inline VerifyTensors checked_results(const VerifyTensors& given, const Ragged& ragged,
                                     const Tensor& like, const char* op) {
  check_output(given.output_token_ids, ScalarType::Int,
               {ragged.batch_size, ragged.max_draft_tokens + 1}, like, op, "output_token_ids");
  check_output(given.num_accepted_tokens, ScalarType::Int, {ragged.batch_size}, like, op,
               "num_accepted_tokens");
  check_output(given.status, ScalarType::Int, {ragged.batch_size}, like, op, "status");
  return given;
}

}  // namespace hetero_spec
