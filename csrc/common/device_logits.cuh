// SPDX-License-Identifier: Apache-2.0
// How launchers are given a matrix of logits. Holds nothing that only a device compiler knows.
#pragma once

#include <cstdint>

#include "common/dtype.h"

namespace hetero_spec {

// Rows of vocab_size values, row_stride values apart, in device memory.
struct DeviceLogits {
  const void* data;  // null: none
  DType dtype;
  int64_t row_stride;
  int64_t vocab_size;
};

}  // namespace hetero_spec
