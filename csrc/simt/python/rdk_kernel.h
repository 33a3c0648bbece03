// SPDX-License-Identifier: Apache-2.0
// An RDK kernel in the memory of the simulated device: None, or (the ten arrays or None of
// RdkTensors in its order, constant_leak).
#pragma once
#include <pybind11/stl.h>

#include "common/rdk.h"
#include "simt/python/device_array.h"

namespace hetero_spec::simt_python {

using KernelArrays = std::optional<std::pair<std::vector<OptionalArray>, float>>;

inline RdkKernel upload_kernel(DeviceMemory& memory, const KernelArrays& kernel,
                               int64_t vocab_size) {
  RdkKernel out;
  if (!kernel.has_value()) return out;
  const std::vector<OptionalArray>& arrays = kernel->first;
  out.vocab_size = vocab_size;
  out.constant_leak = kernel->second;
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
