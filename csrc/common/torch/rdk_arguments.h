// SPDX-License-Identifier: Apache-2.0
// An RDK kernel as it stands in a schema. A mixture: the tensors of hetero_spec/ops/_rdk.py's
// RdkTensors that are given, in its order, bit i of `parts` for its field i (parts < 0: none of
// them), and the leak where it is constant (NaN where it is not). A low-rank kernel: its factors,
// scale and lam. Neither: no kernel.
#pragma once

#include <optional>
#include <vector>

#include "common/rdk.h"
#include "common/torch/checks.h"

namespace hetero_spec {

// Where it stands in a schema.
struct KernelTensors {
  const std::vector<Tensor>& tensors;
  int64_t parts;
  double constant_leak;
  const std::optional<Tensor>& factors;
  double scale;
  double lam;

  bool is_given() const { return parts >= 0 || factors.has_value(); }
};

inline RdkFactors rdk_factors(const KernelTensors& in, int64_t vocab_size, const Tensor& like,
                              const char* op) {
  check_dense(*in.factors, ScalarType::Float, {vocab_size, -1}, op, "factors");
  check_same_device(*in.factors, like, op, "factors");
  const int64_t num_factors = in.factors->size(1);
  STD_TORCH_CHECK(num_factors >= 1 && num_factors <= kChunk, op, ": factors must be 1 to ", kChunk,
                  " columns wide, got ", num_factors);
  return {static_cast<const float*>(in.factors->const_data_ptr()), num_factors,
          static_cast<float>(in.scale), static_cast<float>(in.lam)};
}

inline RdkKernel rdk_kernel(const KernelTensors& in, int64_t vocab_size, const Tensor& like,
                            const char* op) {
  RdkKernel out;
  const std::vector<Tensor>& tensors = in.tensors;
  const int64_t parts = in.parts;
  STD_TORCH_CHECK(parts < 0 || !in.factors.has_value(), op,
                  ": kernel must be a mixture or factors, got both");
  if (in.factors.has_value()) {
    out.vocab_size = vocab_size;
    out.low_rank = rdk_factors(in, vocab_size, like, op);
  }
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
  out.constant_leak = static_cast<float>(in.constant_leak);
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

// What an earlier draw kept of each row, [rows] or with a low-rank kernel [rows, n + 1]; null if
// absent.
inline const float* kept_of_rows(const std::optional<Tensor>& tensor, const RdkKernel& kernel,
                                 int64_t num_rows, const Tensor& like, const char* op,
                                 const char* argument) {
  if (!kernel.is_low_rank()) {
    return optional_data<float>(tensor, ScalarType::Float, {num_rows}, like, op, argument);
  }
  return optional_data<float>(tensor, ScalarType::Float, {num_rows, kernel.row_width()}, like, op,
                              argument);
}

}  // namespace hetero_spec
