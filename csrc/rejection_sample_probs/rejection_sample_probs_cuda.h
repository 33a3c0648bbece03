// SPDX-License-Identifier: Apache-2.0
// Entry points of rejection_sample_probs on CUDA; the contract is
// rejection_sample_probs/rejection_sample_probs.h.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "common/device_logits.cuh"
#include "common/ragged.h"
#include "common/uniforms.h"

namespace hetero_spec {

struct RejectionSampleProbsCuda {
  Ragged ragged;              // all pointers, here and below, are on the device
  DeviceLogits target_probs;  // float32 [R, V]
  DeviceLogits draft_probs;   // float32 [N, V] over target ids; data null: one-hot drafts
  Uniforms uniforms;
  bool block_rule;
  int32_t* output_token_ids;     // [B, K + 1]
  int32_t* num_accepted_tokens;  // [B]
  int32_t* status;               // [B]
};

// Bytes of device memory that one call needs; its contents do not matter.
std::size_t rejection_sample_probs_cuda_workspace(const RejectionSampleProbsCuda& call);

// Asynchronous on `stream`.
cudaError_t rejection_sample_probs_cuda(const RejectionSampleProbsCuda& call, void* workspace,
                                        cudaStream_t stream);

}  // namespace hetero_spec
