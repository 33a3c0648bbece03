// SPDX-License-Identifier: Apache-2.0
#include "common/launch.cuh"
#include "common/mask.cuh"
#include "common/workspace.cuh"
#include "remap_probs/remap_probs.cuh"
#include "row_stats/row_stats_cuda.h"

namespace hetero_spec {
namespace {

struct Workspace {
  RowStats* stats;
  int32_t* num_ids;
  int32_t* target_to_draft_ids;
  uint32_t* mask;
  unsigned char* row_stats;
  std::size_t bytes;
};

Workspace lay_out(const RemapProbsCuda& call, void* base) {
  WorkspaceLayout layout(base);
  Workspace out;
  out.stats = layout.take<RowStats>(call.num_rows);
  out.num_ids = layout.take<int32_t>(1);
  out.target_to_draft_ids = layout.take<int32_t>(call.target_vocab_size);
  out.mask = layout.take<uint32_t>(mask_words_of(call.draft_logits.vocab_size));
  out.row_stats = layout.take<unsigned char>(static_cast<int64_t>(
      row_stats_cuda_workspace(call.num_rows, call.draft_logits.vocab_size, false)));
  out.bytes = layout.size();
  return out;
}

}  // namespace

std::size_t remap_probs_cuda_workspace(const RemapProbsCuda& call) {
  return lay_out(call, nullptr).bytes;
}

cudaError_t remap_probs_cuda(const RemapProbsCuda& call, void* workspace, cudaStream_t stream) {
  if (call.num_rows == 0) return cudaSuccess;
  const Workspace space = lay_out(call, workspace);
  const DeviceLogits& draft = call.draft_logits;
  constexpr int kMinusOne = 0xff;  // in every byte of an int32
  cudaError_t error =
      cudaMemsetAsync(space.target_to_draft_ids, kMinusOne,
                      static_cast<std::size_t>(call.target_vocab_size) * sizeof(int32_t), stream);
  if (error != cudaSuccess) return error;
  error = cudaMemsetAsync(space.num_ids, 0, sizeof(int32_t), stream);
  if (error != cudaSuccess) return error;
  error =
      gpu::launch(dim3(blocks_for(draft.vocab_size, kBlockThreads)), dim3(kBlockThreads), 0, stream,
                  invert_map_kernel<kBlockThreads>, call.draft_to_target_ids, draft.vocab_size,
                  call.target_vocab_size, space.target_to_draft_ids, space.mask, space.num_ids);
  if (error != cudaSuccess) return error;
  error = row_stats_masked_cuda(draft.data, draft.dtype, draft.row_stride, call.num_rows,
                                draft.vocab_size, space.mask, space.num_ids, call.params,
                                space.stats, space.row_stats, stream);
  if (error != cudaSuccess) return error;
  return gpu::launch(row_grid(blocks_for(call.target_vocab_size, kBlockThreads), call.num_rows),
                     dim3(kBlockThreads), 0, stream, remap_write_kernel<kBlockThreads>,
                     RemapWriteArguments{call, space.target_to_draft_ids, space.stats});
}

}  // namespace hetero_spec
