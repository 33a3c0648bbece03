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
  const bool is_low_rank = call.low_rank.factors != nullptr;
  const int64_t places = call.num_rows * num_chunks(call.vocab_size);
  WorkspaceLayout layout(base);
  Workspace out{};
  out.arguments.call = call;
  out.arguments.leaked_mass = layout.take<float>(is_low_rank ? 0 : call.num_rows);
  out.arguments.coefficients =
      layout.take<float>(is_low_rank ? places * call.low_rank.num_factors : 0);
  out.arguments.law_masses = layout.take<double>(is_low_rank ? places : 0);
  out.arguments.masses = layout.take<double>(is_low_rank ? places : 0);
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
  if (call.low_rank.factors == nullptr) {
    const cudaError_t error = gpu::launch(dim3(static_cast<unsigned>(call.num_rows)), threads, 0,
                                          stream, rdk_leaked_kernel<kBlockThreads>, arguments);
    if (error != cudaSuccess) return error;
    return gpu::launch(row_grid(blocks_for(call.vocab_size, kBlockThreads), call.num_rows), threads,
                       0, stream, rdk_mix_kernel<kBlockThreads>, arguments);
  }
  const dim3 grid = row_grid(static_cast<unsigned>(num_chunks(call.vocab_size)), call.num_rows);
  cudaError_t error =
      gpu::launch(grid, threads, 0, stream, rdk_coefficients_kernel<kBlockThreads>, arguments);
  if (error != cudaSuccess) return error;
  error = gpu::launch(grid, threads,
                      static_cast<std::size_t>(call.low_rank.num_factors) * sizeof(float), stream,
                      rdk_weights_kernel<kBlockThreads>, arguments);
  if (error != cudaSuccess) return error;
  return gpu::launch(grid, threads, 0, stream, rdk_finish_kernel<kBlockThreads>, arguments);
}

}  // namespace hetero_spec
