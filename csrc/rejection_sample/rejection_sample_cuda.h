// SPDX-License-Identifier: Apache-2.0
// Entry points of rejection_sample on CUDA; the contract is rejection_sample/rejection_sample.h.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "common/device_logits.cuh"
#include "common/ragged.h"
#include "common/rdk.h"
#include "common/row_law.h"
#include "common/sampling_params.h"
#include "common/uniforms.h"

namespace hetero_spec {

struct RejectionSampleCuda {
  Ragged ragged;  // all pointers, here and below, are on the device
  DeviceLogits target_logits;
  DeviceLogits draft_logits;           // data null: one-hot drafts
  const RowStats* draft_stats;         // [N] or null: made here
  const int32_t* target_to_draft_ids;  // [V] or null: same ids
  RdkKernel kernel;
  const float* draft_leaked_mass;  // [N], low rank [N, n + 1], or null: made here where needed
  SamplingParams params;
  Uniforms uniforms;
  bool block_rule;
  int32_t* output_token_ids;     // [B, K + 1]
  int32_t* num_accepted_tokens;  // [B]
  int32_t* status;               // [B]
};

// Bytes of device memory that one call needs; its contents do not matter.
std::size_t rejection_sample_cuda_workspace(const RejectionSampleCuda& call);

// Asynchronous on `stream`.
cudaError_t rejection_sample_cuda(const RejectionSampleCuda& call, void* workspace,
                                  cudaStream_t stream);

}  // namespace hetero_spec
