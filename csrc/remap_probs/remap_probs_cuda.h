// SPDX-License-Identifier: Apache-2.0
// Entry points of remap_probs on CUDA; the contract is remap_probs/remap_probs.h.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "common/device_logits.cuh"
#include "common/sampling_params.h"

namespace hetero_spec {

struct RemapProbsCuda {
  DeviceLogits draft_logits;  // [rows, Vd]; all pointers, here and below, are on the device
  int64_t num_rows;
  const int32_t* draft_to_target_ids;  // [Vd]
  int64_t target_vocab_size;           // V
  SamplingParams params;
  float* probs;  // [rows, V], contiguous
};

// Bytes of device memory that one call needs; its contents do not matter.
std::size_t remap_probs_cuda_workspace(const RemapProbsCuda& call);

// Asynchronous on `stream`.
cudaError_t remap_probs_cuda(const RemapProbsCuda& call, void* workspace, cudaStream_t stream);

}  // namespace hetero_spec
