// SPDX-License-Identifier: Apache-2.0
#include "acceptance_overlap/acceptance_overlap.cuh"
#include "common/launch.cuh"
#include "common/mask.cuh"
#include "common/workspace.cuh"
#include "row_stats/row_stats_cuda.h"

namespace hetero_spec {
namespace {

struct Workspace {
  RowStats* target_stats;
  RowStats* draft_stats;
  float* leaked_mass;
  LowRankSpace low_rank;
  double* masses;
  unsigned* tickets;
  unsigned char* row_stats;  // for one matrix after the other
  void* zeroed;              // the number of ids and the mask, cleared in one piece
  std::size_t zeroed_bytes;
  int32_t* num_ids;
  uint32_t* mask;
  std::size_t bytes;
};

Workspace lay_out(const AcceptanceOverlapCuda& call, void* base) {
  const int64_t rows = call.num_rows, vocab_size = call.target_logits.vocab_size;
  const int64_t draft_vocab_size = call.draft_logits.vocab_size;
  const bool makes_laws = call.draft_stats == nullptr;
  WorkspaceLayout layout(base);
  Workspace out{};
  const std::size_t zeroed_from = layout.size();
  out.tickets = layout.take<unsigned>(rows);
  out.num_ids = layout.take<int32_t>(1);
  out.mask = layout.take<uint32_t>(
      makes_laws && call.target_to_draft_ids != nullptr ? mask_words_of(draft_vocab_size) : 0);
  out.zeroed = out.tickets;
  out.zeroed_bytes = layout.size() - zeroed_from;
  out.target_stats = layout.take<RowStats>(rows);
  out.draft_stats = layout.take<RowStats>(makes_laws ? rows : 0);
  const bool is_low_rank = call.kernel.needs_coefficients();
  out.leaked_mass = layout.take<float>(call.kernel.needs_leaked_mass() ? rows
                                       : is_low_rank ? rows * call.kernel.row_width()
                                                     : 0);
  if (is_low_rank) {
    out.low_rank = take_low_rank_space(layout, call.kernel.low_rank, rows, vocab_size, false);
  }
  out.masses = layout.take<double>(rows * num_chunks(vocab_size));
  const std::size_t one = row_stats_cuda_workspace(rows, vocab_size, false);
  const std::size_t other = row_stats_cuda_workspace(rows, draft_vocab_size, false);
  out.row_stats = layout.take<unsigned char>(static_cast<int64_t>(one > other ? one : other));
  out.bytes = layout.size();
  return out;
}

cudaError_t launch_draft_laws(const AcceptanceOverlapCuda& call, const Workspace& space,
                              cudaStream_t stream) {
  const DeviceLogits& draft = call.draft_logits;
  const bool has_map = call.target_to_draft_ids != nullptr;
  if (has_map) {
    const cudaError_t error = gpu::launch(
        dim3(blocks_for(call.target_logits.vocab_size, kBlockThreads)), dim3(kBlockThreads), 0,
        stream, mask_from_inverse_map_kernel<kBlockThreads>, call.target_to_draft_ids,
        call.target_logits.vocab_size, draft.vocab_size, space.mask, space.num_ids);
    if (error != cudaSuccess) return error;
  }
  return row_stats_masked_cuda(draft.data, draft.dtype, draft.row_stride, call.num_rows,
                               draft.vocab_size, has_map ? space.mask : nullptr,
                               has_map ? space.num_ids : nullptr, call.params, space.draft_stats,
                               space.row_stats, stream);
}

}  // namespace

std::size_t acceptance_overlap_cuda_workspace(const AcceptanceOverlapCuda& call) {
  return lay_out(call, nullptr).bytes;
}

cudaError_t acceptance_overlap_cuda(const AcceptanceOverlapCuda& call, void* workspace,
                                    cudaStream_t stream) {
  if (call.num_rows == 0) return cudaSuccess;
  const Workspace space = lay_out(call, workspace);
  const DeviceLogits& target = call.target_logits;
  cudaError_t error = cudaMemsetAsync(space.zeroed, 0, space.zeroed_bytes, stream);
  if (error != cudaSuccess) return error;
  error = row_stats_masked_cuda(target.data, target.dtype, target.row_stride, call.num_rows,
                                target.vocab_size, nullptr, nullptr, call.params,
                                space.target_stats, space.row_stats, stream);
  if (error != cudaSuccess) return error;
  if (call.draft_stats == nullptr) {
    error = launch_draft_laws(call, space, stream);
    if (error != cudaSuccess) return error;
  }
  const OverlapArguments arguments{
      call,
      space.target_stats,
      call.draft_stats == nullptr ? space.draft_stats : call.draft_stats,
      space.leaked_mass,
      space.masses,
      space.tickets};
  if (call.kernel.needs_leaked_mass()) {
    error = gpu::launch(dim3(static_cast<unsigned>(call.num_rows)), dim3(kBlockThreads), 0, stream,
                        overlap_leaked_mass_kernel<kBlockThreads>, arguments, space.leaked_mass);
    if (error != cudaSuccess) return error;
  }
  const dim3 grid = row_grid(blocks_for(num_chunks(target.vocab_size), kBlockWarps), call.num_rows);
  const RdkForm form = call.kernel.form();
  std::size_t shared_bytes = 0;
  if (form == kLowRank) {
    shared_bytes = shared_kept_bytes(call.kernel.low_rank);
    error = launch_low_rank_rows(
        {call.kernel.low_rank, target.vocab_size, space.low_rank, space.leaked_mass, nullptr},
        OverlapRows{arguments}, call.num_rows, stream);
    if (error != cudaSuccess) return error;
  }
  return dispatch(target.dtype, false, [&](auto type, auto) {
    using T = typename decltype(type)::type;
    return with_form(form, [&](auto compiled_form) {
      return gpu::launch(grid, dim3(kBlockThreads), shared_bytes, stream,
                         overlap_kernel<T, decltype(compiled_form)::value>, arguments);
    });
  });
}

}  // namespace hetero_spec
