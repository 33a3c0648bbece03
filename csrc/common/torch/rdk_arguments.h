// SPDX-License-Identifier: Apache-2.0
// An RDK kernel as it stands in a schema: the tensors of hetero_spec/ops/_rdk.py's RdkTensors that
// are given, in its order, bit i of `parts` for its field i (parts < 0: no kernel), and the leak
// where it is constant (NaN where it is not).
#pragma once

#include <optional>
#include <vector>

#include "common/rdk.h"
#include "common/torch/checks.h"

namespace hetero_spec {

inline RdkKernel rdk_kernel(const std::vector<Tensor>& tensors, int64_t parts, double constant_leak,
                            int64_t vocab_size, const Tensor& like, const char* op) {
  RdkKernel out;
  if (parts < 0) return out;
  constexpr int kNumParts = 13;
  STD_TORCH_CHECK(parts < (1 << kNumParts) &&
                      __builtin_popcountll(static_cast<uint64_t>(parts)) == int(tensors.size()),
                  op, ": kernel must have as many tensors as kernel_parts has bits, got ",
                  static_cast<int64_t>(tensors.size()));
  std::size_t next = 0;
  // Fields are asked for in the order of their bits.
  const auto take = [&](int field, ScalarType dtype, std::initializer_list<int64_t> shape,
                        const char* name) -> const Tensor* {
    if ((parts >> field & 1) == 0) return nullptr;
    const Tensor& tensor = tensors[next++];
    check_dense(tensor, dtype, shape, op, name);
    check_same_device(tensor, like, op, name);
    return &tensor;
  };
  const auto data = [](const Tensor* tensor) {
    return tensor == nullptr ? nullptr : tensor->const_data_ptr();
  };
  out.vocab_size = vocab_size;
  out.constant_leak = static_cast<float>(constant_leak);
  out.leak = static_cast<const float*>(data(take(0, ScalarType::Float, {vocab_size}, "leak")));
  out.prior = static_cast<const float*>(data(take(1, ScalarType::Float, {vocab_size}, "prior")));
  out.prior_cumulative = static_cast<const double*>(
      data(take(2, ScalarType::Double, {vocab_size}, "prior_cumulative")));
  out.spread = static_cast<const float*>(data(take(3, ScalarType::Float, {vocab_size}, "spread")));
  out.row_offsets =
      static_cast<const int32_t*>(data(take(4, ScalarType::Int, {vocab_size + 1}, "row_offsets")));
  const Tensor* columns = take(5, ScalarType::Int, {-1}, "column_ids");
  out.num_entries = columns == nullptr ? 0 : columns->size(0);
  const int64_t entries = out.num_entries;
  out.column_ids = static_cast<const int32_t*>(data(columns));
  out.weights = static_cast<const float*>(data(take(6, ScalarType::Float, {entries}, "weights")));
  out.source_offsets = static_cast<const int32_t*>(
      data(take(7, ScalarType::Int, {vocab_size + 1}, "source_offsets")));
  out.source_ids =
      static_cast<const int32_t*>(data(take(8, ScalarType::Int, {entries}, "source_ids")));
  out.source_weights =
      static_cast<const float*>(data(take(9, ScalarType::Float, {entries}, "source_weights")));
  const Tensor* spreading = take(10, ScalarType::Int, {-1}, "spreading_ids");
  out.spreading_ids = static_cast<const int32_t*>(data(spreading));
  out.num_spreading_ids = spreading == nullptr ? 0 : spreading->size(0);
  out.entry_target_ids =
      static_cast<const int32_t*>(data(take(11, ScalarType::Int, {entries}, "entry_target_ids")));
  out.entry_source_numbers = static_cast<const int32_t*>(
      data(take(12, ScalarType::Int, {entries}, "entry_source_numbers")));
  const bool leaks = out.has_constant_leak() ? out.constant_leak != 0.0f : out.leak != nullptr;
  STD_TORCH_CHECK(!leaks || (out.prior != nullptr && out.prior_cumulative != nullptr), op,
                  ": kernel must have prior and prior_cumulative where it leaks, got neither");
  const int64_t sparse_parts = parts >> 3;
  STD_TORCH_CHECK(sparse_parts == 0 || sparse_parts == 0x3ff, op,
                  ": kernel must have spread, both forms of its sparse rows and their index, or "
                  "none, got some");
  return out;
}

}  // namespace hetero_spec
