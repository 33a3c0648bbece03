// SPDX-License-Identifier: Apache-2.0
#include "common/launch.cuh"
#include "common/mask.cuh"
#include "common/workspace.cuh"
#include "draft_sample/draft_sample.cuh"

namespace hetero_spec {
namespace {

struct Workspace {
  DraftSampleArguments arguments;
  uint32_t* mask;
  int32_t* num_ids;
  LowRankSpace low_rank;
  std::size_t bytes;
};

Workspace lay_out(const DraftSampleCuda& call, void* base) {
  const int64_t batch = call.batch_size, chunks = num_chunks(call.draft_logits.vocab_size);
  const bool has_map = call.draft_to_target_ids != nullptr;
  WorkspaceLayout layout(base);
  Workspace out{};
  DraftSampleArguments& arguments = out.arguments;
  arguments.call = call;
  arguments.tickets = layout.take<unsigned>(batch + 1);  // and the number of ids: cleared together
  out.num_ids = base == nullptr ? nullptr : reinterpret_cast<int32_t*>(arguments.tickets + batch);
  arguments.chunk_sums = layout.take<ChunkSum>(batch * chunks);
  arguments.weighted_sums = layout.take<float>(batch * chunks);
  arguments.masses = layout.take<double>(batch * chunks);
  out.mask = layout.take<uint32_t>(has_map ? mask_words_of(call.draft_logits.vocab_size) : 0);
  if (has_map) {
    arguments.mask = out.mask;
    arguments.num_ids = out.num_ids;
  }
  if (call.kernel.needs_coefficients()) {
    out.low_rank = take_low_rank_space(layout, call.kernel.low_rank, batch, call.kernel.vocab_size,
                                       /*wants_law_masses=*/false);
  }
  out.bytes = layout.size();
  return out;
}

cudaError_t redistribute_low_rank(const Workspace& space, cudaStream_t stream) {
  const DraftSampleCuda& call = space.arguments.call;
  const RdkFactors& factors = call.kernel.low_rank;
  // Of requests that drew nothing, and of a kernel that moves nothing.
  cudaError_t error = cudaMemsetAsync(
      call.leaked_mass, 0,
      static_cast<std::size_t>(call.batch_size * factors.row_width()) * sizeof(float), stream);
  if (error != cudaSuccess || call.kernel.is_identity()) return error;
  error = launch_low_rank_rows(
      {factors, call.kernel.vocab_size, space.low_rank, call.leaked_mass, nullptr}, DrawnRows{call},
      call.batch_size, stream);
  if (error != cudaSuccess) return error;
  return gpu::launch(dim3(static_cast<unsigned>(call.batch_size)), dim3(kBlockThreads),
                     shared_kept_bytes(factors), stream, low_rank_draw_kernel<kBlockThreads>, call,
                     space.low_rank.masses);
}

}  // namespace

std::size_t draft_sample_cuda_workspace(const DraftSampleCuda& call) {
  return lay_out(call, nullptr).bytes;
}

cudaError_t draft_sample_cuda(const DraftSampleCuda& call, void* workspace, cudaStream_t stream) {
  if (call.batch_size == 0) return cudaSuccess;
  const Workspace space = lay_out(call, workspace);
  const DraftSampleArguments& arguments = space.arguments;
  cudaError_t error =
      cudaMemsetAsync(arguments.tickets, 0,
                      static_cast<std::size_t>(call.batch_size + 1) * sizeof(unsigned), stream);
  if (error != cudaSuccess) return error;
  const int64_t vocab_size = call.draft_logits.vocab_size;
  if (arguments.mask != nullptr) {
    error = gpu::launch(dim3(blocks_for(vocab_size, kBlockThreads)), dim3(kBlockThreads), 0, stream,
                        mask_from_map_kernel<kBlockThreads>, call.draft_to_target_ids, vocab_size,
                        space.mask, space.num_ids);
    if (error != cudaSuccess) return error;
  }
  const dim3 grid = row_grid(blocks_for(num_chunks(vocab_size), kBlockWarps), call.batch_size);
  error =
      dispatch(call.draft_logits.dtype, may_truncate(call.params), [&](auto type, auto truncate) {
        using T = typename decltype(type)::type;
        return gpu::launch(grid, dim3(kBlockThreads), 0, stream,
                           draft_sample_kernel<T, decltype(truncate)::value>, arguments);
      });
  if (error != cudaSuccess || !call.kernel.is_given()) return error;
  if (call.kernel.is_low_rank()) return redistribute_low_rank(space, stream);
  return gpu::launch(dim3(static_cast<unsigned>(call.batch_size)), dim3(kBlockThreads), 0, stream,
                     redistribute_kernel<kBlockThreads>, call);
}

}  // namespace hetero_spec
