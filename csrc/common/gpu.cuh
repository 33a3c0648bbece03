// SPDX-License-Identifier: Apache-2.0
// The only header of CUDA that kernel files include. nvcc sees NVIDIA's headers; any other compiler
// sees simt/device.h, which runs the same source on the CPU.
//
// What the two need differently sits here, behind one function each: shared memory, launching, and
// the few instructions that have no name in CUDA C++. Everything else in a kernel is plain CUDA
// C++.
#pragma once
#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include "simt/device.h"
#endif

#include <cstddef>
#include <cstdint>

namespace hetero_spec::gpu {

#if defined(__CUDACC__)

// The block's one object of type T in shared memory, uninitialised. The same T gives the same
// storage throughout a kernel: use a struct of its own for each purpose.
template <class T>
__device__ __forceinline__ T& shared() {
  __shared__ T storage;
  return storage;
}

// The launch's dynamic shared memory, 16-byte aligned, uninitialised.
template <class T>
__device__ __forceinline__ T* shared_dynamic() {
  extern __shared__ __align__(16) unsigned char hetero_spec_dynamic_shared[];
  return reinterpret_cast<T*>(hetero_spec_dynamic_shared);
}

#else  // the same two on the CPU, where they also know who asks

template <class T>
inline T& shared(HETERO_SPEC_SITE) {
  static const char key = 0;
  return *static_cast<T*>(simt::shared_static(&key, sizeof(T), alignof(T), site));
}
template <class T>
inline T* shared_dynamic(HETERO_SPEC_SITE) {
  return static_cast<T*>(simt::shared_dynamic(site));
}

#endif

// Launches `kernel` on the caller's stream. Returns cudaSuccess without a launch for an empty grid.
template <class... Parameters, class... Arguments>
inline cudaError_t launch(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                          cudaStream_t stream, void (*kernel)(Parameters...),
                          Arguments... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaSuccess;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = dynamic_shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// 2^x by the special function unit: at most 2 ulp off; subnormal results are zero.
__device__ __forceinline__ float exp2_approx(float x) {
#if defined(__CUDACC__)
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return std::exp2f(x);
#endif
}

// A value that other blocks may be changing by atomics at this moment: read once, ordered by
// nothing.
__device__ __forceinline__ int32_t load_relaxed(const int32_t* address) {
#if defined(__CUDACC__)
  int32_t value;
  asm volatile("ld.relaxed.gpu.s32 %0, [%1];" : "=r"(value) : "l"(address));
  return value;
#else
  return __atomic_load_n(address, __ATOMIC_RELAXED);
#endif
}

}  // namespace hetero_spec::gpu
