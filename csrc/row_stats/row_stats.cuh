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
__global__ void __launch_bounds__(kBlockThreads, kTruncate ? 2 : 3) row_stats_kernel(RowStatsArguments arguments) {
  const int64_t row_idx = blockIdx.y + static_cast<int64_t>(blockIdx.z) * gridDim.y;
  if (row_idx >= arguments.num_rows) return;
  const int chunks = static_cast<int>(num_chunks(arguments.vocab_size));
  const RowView<T> row{static_cast<const T*>(arguments.logits) + row_idx * arguments.row_stride,
                       arguments.vocab_size, arguments.mask};
  const RequestParams params = request_params(arguments.params, row_idx);
  ChunkSum* sums = arguments.chunk_sums + row_idx * chunks;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpLanes;
  const int chunk = static_cast<int>(blockIdx.x) * kBlockWarps + thread / kWarpLanes;
  if (chunk < chunks) {
    const LawSum sum =
        sum_chunk<false>(row, chunk, lane, exponent_scale(params.inv_temperature), neg_inf());
    if (lane == 0) sums[chunk] = {sum.max_logit, sum.sum};
  }
  if (!is_last_block(arguments.tickets + row_idx, gridDim.x)) return;
  const int64_t num_ids = arguments.num_ids == nullptr ? arguments.vocab_size : *arguments.num_ids;
  const RowStats stats = finish_row<kTruncate>(row, params, sums, num_ids, nullptr);
  if (thread == 0) arguments.stats[row_idx] = stats;
}

}  // namespace hetero_spec
