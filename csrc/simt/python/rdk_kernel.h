// SPDX-License-Identifier: Apache-2.0
// An RDK kernel in the memory of the simulated device: a mixture as the ten arrays or None of
// RdkTensors in its order, or factors, or none.
#pragma once
#include <pybind11/stl.h>

#include "common/rdk.h"
#include "simt/python/device_array.h"

namespace hetero_spec::simt_python {

// (a mixture's arrays or None, constant_leak, factors or None, scale, lam)
using KernelArrays =
    std::tuple<std::optional<std::vector<OptionalArray>>, float, OptionalArray, float, float>;

inline RdkKernel upload_kernel(DeviceMemory& memory, const KernelArrays& kernel,
                               int64_t vocab_size) {
  const auto& [mixture, constant_leak, factors, scale, lam] = kernel;
  RdkKernel out;
  if (factors.has_value()) {
    out.vocab_size = vocab_size;
    out.low_rank = {memory.upload<float>("factors", *factors), factors->shape(1), scale, lam};
  }
  if (!mixture.has_value()) return out;
  const std::vector<OptionalArray>& arrays = *mixture;
  out.vocab_size = vocab_size;
  out.constant_leak = constant_leak;
  out.leak = memory.upload<float>("leak", arrays.at(0));
  out.prior = memory.upload<float>("prior", arrays.at(1));
  out.prior_cumulative = memory.upload<double>("prior_cumulative", arrays.at(2));
  out.spread = memory.upload<float>("spread", arrays.at(3));
  out.row_offsets = memory.upload<int32_t>("row_offsets", arrays.at(4));
  out.column_ids = memory.upload<int32_t>("column_ids", arrays.at(5));
  out.weights = memory.upload<float>("weights", arrays.at(6));
  out.source_offsets = memory.upload<int32_t>("source_offsets", arrays.at(7));
  out.source_ids = memory.upload<int32_t>("source_ids", arrays.at(8));
  out.source_weights = memory.upload<float>("source_weights", arrays.at(9));
  out.num_entries = arrays.at(5).has_value() ? arrays.at(5)->shape(0) : 0;
  return out;
}

}  // namespace hetero_spec::simt_python
