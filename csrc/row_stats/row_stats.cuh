// SPDX-License-Identifier: Apache-2.0
// row_stats on the device. Grid: x = groups of kBlockWarps chunks, y = row, z = row / 65535ths.
// Warp -> chunk; the last block of a row to finish combines its chunks and, if the row is
// truncated, finds its cutoff. Passes over memory: one read of the row; a truncated row is read
// again by one block (common/row_law.cuh). Numerics: float32 inside a chunk, float64 across chunks.
#pragma once

#include "common/row_law.cuh"

namespace hetero_spec {

struct RowStatsArguments {
  const void* logits;
  int64_t row_stride;
  int64_t num_rows;
  int64_t vocab_size;
  const uint32_t* mask;    // or null
  const int32_t* num_ids;  // that the mask leaves; null without a mask
  SamplingParams params;
  ChunkSum* chunk_sums;  // [rows, chunks]
  unsigned* tickets;     // [rows], 0
  RowStats* stats;       // [rows]
};

template <class T, bool kTruncate>
__global__ void __launch_bounds__(kBlockThreads, kTruncate ? 2 : 3)
    row_stats_kernel(RowStatsArguments arguments) {
  const int64_t row_idx = blockIdx.y + static_cast<int64_t>(blockIdx.z) * gridDim.y;
  if (row_idx >= arguments.num_rows) return;
  const RowView<T> row{static_cast<const T*>(arguments.logits) + row_idx * arguments.row_stride,
                       arguments.vocab_size, arguments.mask};
  const RequestParams params = request_params(arguments.params, row_idx);
  const int64_t num_ids = arguments.num_ids == nullptr ? arguments.vocab_size : *arguments.num_ids;
  RowStats stats;
  if (!row_law<kTruncate>(row, params, num_ids, blockIdx.x, gridDim.x,
                          arguments.chunk_sums + row_idx * num_chunks(arguments.vocab_size),
                          arguments.tickets + row_idx, &stats)) {
    return;
  }
  if (threadIdx.x == 0) arguments.stats[row_idx] = stats;
}

}  // namespace hetero_spec
