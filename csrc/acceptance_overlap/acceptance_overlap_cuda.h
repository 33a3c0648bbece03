// SPDX-License-Identifier: Apache-2.0
// Entry points of acceptance_overlap on CUDA; the contract is
// acceptance_overlap/acceptance_overlap.h.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "common/device_logits.cuh"
#include "common/rdk.h"
#include "common/row_law.h"
#include "common/sampling_params.h"

namespace hetero_spec {

struct AcceptanceOverlapCuda {
  DeviceLogits target_logits;  // [rows, V]; all pointers, here and below, are on the device
  DeviceLogits draft_logits;   // [rows, Vd]
  int64_t num_rows;
  const RowStats* draft_stats;         // [rows] or null: made here
  const int32_t* target_to_draft_ids;  // [V] or null: same ids
  RdkKernel kernel;
  SamplingParams params;
  float* overlap;  // [rows]
};

// Bytes of device memory that one call needs; its contents do not matter.
std::size_t acceptance_overlap_cuda_workspace(const AcceptanceOverlapCuda& call);

// Asynchronous on `stream`.
cudaError_t acceptance_overlap_cuda(const AcceptanceOverlapCuda& call, void* workspace,
                                    cudaStream_t stream);

}  // namespace hetero_spec
