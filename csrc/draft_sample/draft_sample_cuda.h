// SPDX-License-Identifier: Apache-2.0
// Entry points of draft_sample on CUDA; the contract is draft_sample/draft_sample.h.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "common/device_logits.cuh"
#include "common/rdk.h"
#include "common/row_law.h"
#include "common/sampling_params.h"

namespace hetero_spec {

struct DraftSampleCuda {
  DeviceLogits draft_logits;  // [B, Vd]; all pointers, here and below, are on the device
  int64_t batch_size;
  const int32_t* draft_to_target_ids;  // [Vd] or null: same ids
  const int32_t* target_to_draft_ids;  // [V], its inverse: read with a kernel
  RdkKernel kernel;
  SamplingParams params;
  const double* uniform_samples;  // [B], with a kernel [B, 3], or null: then
  const int64_t* seeds;           // [B]
  const int64_t* positions;       // [B]
  int32_t* target_token_ids;      // [B], and so all outputs
  int32_t* draft_token_ids;
  float* probs;
  RowStats* stats;
  float* entropy;
  float* max_prob;
  float* leaked_mass;  // [B, kernel.row_width()], null without a kernel
};

// Bytes of device memory that one call needs; its contents do not matter.
std::size_t draft_sample_cuda_workspace(const DraftSampleCuda& call);

// Asynchronous on `stream`.
cudaError_t draft_sample_cuda(const DraftSampleCuda& call, void* workspace, cudaStream_t stream);

}  // namespace hetero_spec
