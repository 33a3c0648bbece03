// SPDX-License-Identifier: Apache-2.0
#include "common/launch.cuh"
#include "common/mask.cuh"
#include "common/workspace.cuh"
#include "row_stats/row_stats.cuh"
#include "row_stats/row_stats_cuda.h"

namespace hetero_spec {
namespace {

struct Workspace {
  ChunkSum* chunk_sums;
  unsigned* tickets;
  int32_t* num_ids;
  uint32_t* mask;
  std::size_t bytes;
};

Workspace lay_out(void* base, int64_t num_rows, int64_t vocab_size, bool has_map) {
  WorkspaceLayout layout(base);
  Workspace out;
  out.chunk_sums = layout.take<ChunkSum>(num_rows * num_chunks(vocab_size));
  out.tickets = layout.take<unsigned>(num_rows);
  out.num_ids = layout.take<int32_t>(has_map ? 1 : 0);
  out.mask = layout.take<uint32_t>(has_map ? mask_words_of(vocab_size) : 0);
  out.bytes = layout.size();
  return out;
}

}  // namespace

std::size_t row_stats_cuda_workspace(int64_t num_rows, int64_t vocab_size, bool has_map) {
  return lay_out(nullptr, num_rows, vocab_size, has_map).bytes;
}

cudaError_t row_stats_masked_cuda(const void* logits, DType dtype, int64_t row_stride,
                                  int64_t num_rows, int64_t vocab_size, const uint32_t* mask,
                                  const int32_t* num_ids, const SamplingParams& params,
                                  RowStats* stats, void* workspace, cudaStream_t stream) {
  if (num_rows == 0) return cudaSuccess;
  const Workspace space = lay_out(workspace, num_rows, vocab_size, false);
  const cudaError_t error = cudaMemsetAsync(
      space.tickets, 0, static_cast<std::size_t>(num_rows) * sizeof(unsigned), stream);
  if (error != cudaSuccess) return error;
  const RowStatsArguments arguments{logits,  row_stride, num_rows,         vocab_size,    mask,
                                    num_ids, params,     space.chunk_sums, space.tickets, stats};
  const dim3 grid = row_grid(blocks_for(num_chunks(vocab_size), kBlockWarps), num_rows);
  return dispatch(dtype, may_truncate(params), [&](auto type, auto truncate) {
    using T = typename decltype(type)::type;
    return gpu::launch(grid, dim3(kBlockThreads), 0, stream,
                       row_stats_kernel<T, decltype(truncate)::value>, arguments);
  });
}

cudaError_t row_stats_cuda(const void* logits, DType dtype, int64_t row_stride, int64_t num_rows,
                           int64_t vocab_size, const int32_t* draft_to_target_ids,
                           const SamplingParams& params, RowStats* stats, void* workspace,
                           cudaStream_t stream) {
  if (num_rows == 0 || draft_to_target_ids == nullptr) {
    return row_stats_masked_cuda(logits, dtype, row_stride, num_rows, vocab_size, nullptr, nullptr,
                                 params, stats, workspace, stream);
  }
  const Workspace space = lay_out(workspace, num_rows, vocab_size, true);
  cudaError_t error = cudaMemsetAsync(space.num_ids, 0, sizeof(int32_t), stream);
  if (error != cudaSuccess) return error;
  error = gpu::launch(dim3(blocks_for(vocab_size, kBlockThreads)), dim3(kBlockThreads), 0, stream,
                      mask_from_map_kernel<kBlockThreads>, draft_to_target_ids, vocab_size,
                      space.mask, space.num_ids);
  if (error != cudaSuccess) return error;
  return row_stats_masked_cuda(logits, dtype, row_stride, num_rows, vocab_size, space.mask,
                               space.num_ids, params, stats, workspace, stream);
}

}  // namespace hetero_spec
