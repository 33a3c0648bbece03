// SPDX-License-Identifier: Apache-2.0
#include "common/launch.cuh"
#include "common/workspace.cuh"
#include "rejection_sample_probs/rejection_sample_probs.cuh"

namespace hetero_spec {
namespace {

struct Workspace {
  RejectionSampleProbsArguments arguments;
  void* zeroed;  // the tickets, cleared in one piece
  std::size_t zeroed_bytes;
  std::size_t bytes;
};

// Residuals of a request whose masses are kept at once.
int64_t num_residuals(const RejectionSampleProbsCuda& call) {
  return call.block_rule && call.ragged.max_draft_tokens > 1 ? call.ragged.max_draft_tokens : 1;
}

Workspace lay_out(const RejectionSampleProbsCuda& call, void* base) {
  const int64_t batch = call.ragged.batch_size, rows = call.ragged.num_tokens + batch;
  const int64_t chunks = num_chunks(call.target_probs.vocab_size);
  WorkspaceLayout layout(base);
  Workspace out{};
  RejectionSampleProbsArguments& arguments = out.arguments;
  arguments.call = call;
  const std::size_t zeroed_from = layout.size();
  arguments.row_tickets = layout.take<unsigned>(rows);
  arguments.draw_tickets = layout.take<unsigned>(batch);
  out.zeroed = arguments.row_tickets;
  out.zeroed_bytes = layout.size() - zeroed_from;
  arguments.stop_at = layout.take<int32_t>(batch);
  arguments.sums = layout.take<float>(rows * chunks);
  arguments.tests = layout.take<RowTest>(rows);
  arguments.masses = layout.take<double>(batch * num_residuals(call) * chunks);
  out.bytes = layout.size();
  return out;
}

}  // namespace

std::size_t rejection_sample_probs_cuda_workspace(const RejectionSampleProbsCuda& call) {
  return lay_out(call, nullptr).bytes;
}

cudaError_t rejection_sample_probs_cuda(const RejectionSampleProbsCuda& call, void* workspace,
                                        cudaStream_t stream) {
  const int64_t batch = call.ragged.batch_size;
  if (batch == 0) return cudaSuccess;
  const Workspace space = lay_out(call, workspace);
  const RejectionSampleProbsArguments& arguments = space.arguments;
  cudaError_t error = cudaMemsetAsync(space.zeroed, 0, space.zeroed_bytes, stream);
  if (error != cudaSuccess) return error;
  constexpr int kBeyondAnyPosition = 0x7f;  // in every byte of an int32
  error = cudaMemsetAsync(arguments.stop_at, kBeyondAnyPosition,
                          static_cast<std::size_t>(batch) * sizeof(int32_t), stream);
  if (error != cudaSuccess) return error;
  const unsigned groups = blocks_for(num_chunks(call.target_probs.vocab_size), kBlockWarps);
  const dim3 rows = row_grid(groups, batch * (call.ragged.max_draft_tokens + 1));
  const dim3 residuals = row_grid(groups, batch * num_residuals(call));
  const auto launch = [&](auto block_rule) {
    constexpr bool kBlockRule = decltype(block_rule)::value;
    const cudaError_t failed =
        gpu::launch(rows, dim3(kBlockThreads), 0, stream, prob_rows_kernel<kBlockRule>, arguments);
    if (failed != cudaSuccess) return failed;
    return gpu::launch(residuals, dim3(kBlockThreads), 0, stream, prob_draw_kernel<kBlockRule>,
                       arguments);
  };
  return call.block_rule ? launch(std::true_type{}) : launch(std::false_type{});
}

}  // namespace hetero_spec
