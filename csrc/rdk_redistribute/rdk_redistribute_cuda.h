// SPDX-License-Identifier: Apache-2.0
// Entry points of rdk_redistribute on CUDA; the contract is rdk_redistribute/rdk_redistribute.h,
// and all of the call's pointers are on the device.
#pragma once

#include <driver_types.h>

#include <cstddef>

#include "rdk_redistribute/rdk_redistribute.h"

namespace hetero_spec {

// Bytes of device memory that one call needs; its contents do not matter.
std::size_t rdk_redistribute_cuda_workspace(const RdkRedistribute& call);

// Asynchronous on `stream`.
cudaError_t rdk_redistribute_cuda(const RdkRedistribute& call, void* workspace,
                                  cudaStream_t stream);

}  // namespace hetero_spec
