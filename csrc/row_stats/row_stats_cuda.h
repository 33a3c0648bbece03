// SPDX-License-Identifier: Apache-2.0
// Entry points of row_stats on CUDA; the contract is row_stats/row_stats.h.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"
#include "common/row_law.h"
#include "common/sampling_params.h"

namespace hetero_spec {

// Bytes of device memory that one call needs; its contents do not matter.
std::size_t row_stats_cuda_workspace(int64_t num_rows, int64_t vocab_size, bool has_map);

// All pointers are on the device; asynchronous on `stream`.
cudaError_t row_stats_cuda(const void* logits, DType dtype, int64_t row_stride, int64_t num_rows,
                           int64_t vocab_size, const int32_t* draft_to_target_ids,
                           const SamplingParams& params, RowStats* stats, void* workspace,
                           cudaStream_t stream);

// The same for ops that know which ids count: bit id % 32 of mask[id / 32], and their number. Both
// on the device, both null where all ids count. The workspace is that of a call without a map.
cudaError_t row_stats_masked_cuda(const void* logits, DType dtype, int64_t row_stride,
                                  int64_t num_rows, int64_t vocab_size, const uint32_t* mask,
                                  const int32_t* num_ids, const SamplingParams& params,
                                  RowStats* stats, void* workspace, cudaStream_t stream);

}  // namespace hetero_spec
