// SPDX-License-Identifier: Apache-2.0
#include "common/launch.cuh"
#include "common/workspace.cuh"
#include "rdk_redistribute/rdk_redistribute.cuh"

namespace hetero_spec {
namespace {

struct Workspace {
  RdkRedistributeArguments arguments;
  std::size_t bytes;
};

Workspace lay_out(const RdkRedistribute& call, void* base) {
  const RdkFactors& factors = call.kernel.low_rank;
  WorkspaceLayout layout(base);
  Workspace out{};
  out.arguments.call = call;
  if (factors.is_given()) {
    out.arguments.space =
        take_low_rank_space(layout, factors, call.num_rows, call.vocab_size, true);
    out.arguments.kept = layout.take<float>(call.num_rows * factors.row_width());
  } else {
    out.arguments.leaked_mass = layout.take<float>(call.num_rows);
  }
  out.bytes = layout.size();
  return out;
}

}  // namespace

std::size_t rdk_redistribute_cuda_workspace(const RdkRedistribute& call) {
  return lay_out(call, nullptr).bytes;
}

cudaError_t rdk_redistribute_cuda(const RdkRedistribute& call, void* workspace,
                                  cudaStream_t stream) {
  if (call.num_rows == 0) return cudaSuccess;
  const RdkRedistributeArguments arguments = lay_out(call, workspace).arguments;
  const dim3 threads(kBlockThreads);
  if (!call.kernel.is_low_rank()) {
    const cudaError_t error = gpu::launch(dim3(static_cast<unsigned>(call.num_rows)), threads, 0,
                                          stream, rdk_leaked_kernel<kBlockThreads>, arguments);
    if (error != cudaSuccess) return error;
    return gpu::launch(row_grid(blocks_for(call.vocab_size, kBlockThreads), call.num_rows), threads,
                       0, stream, rdk_mix_kernel<kBlockThreads>, arguments);
  }
  const GivenLaws laws{call.draft_probs, call.row_stride, call.num_rows};
  const cudaError_t error = launch_low_rank_rows(
      {call.kernel.low_rank, call.vocab_size, arguments.space, arguments.kept, call.probs}, laws,
      call.num_rows, stream);
  if (error != cudaSuccess) return error;
  return gpu::launch(row_grid(static_cast<unsigned>(num_chunks(call.vocab_size)), call.num_rows),
                     threads, 0, stream, rdk_finish_kernel<kBlockThreads>, arguments);
}

}  // namespace hetero_spec
