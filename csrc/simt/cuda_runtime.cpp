// SPDX-License-Identifier: Apache-2.0
// The calls of the CUDA runtime that launchers and tests make: this file stands in for libcudart.
//
// Device memory is host memory with exact bounds, filled with 0xff bytes (NaN, -1). In the
// AddressSanitizer build it is poisoned except while a kernel or a copy runs. Null pointers and
// unknown handles give an error code; a fault of a kernel throws simt::Error out of the call that
// runs it (the launch, or with deferred streams the synchronisation).
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "simt/engine.h"
#include "simt/fiber.h"
#include "simt/traffic.h"

#if HETERO_SPEC_SIMT_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace hetero_spec::simt {
namespace {

struct Runtime {
  std::map<std::uintptr_t, std::size_t> allocations;
  std::map<const void*, std::vector<std::function<void()>>> streams;  // work not yet run
  int accesses = 0;
};
Runtime& runtime() {
  static Runtime& instance = *new Runtime;
  return instance;
}

void set_poison([[maybe_unused]] bool poisoned) {
#if HETERO_SPEC_SIMT_ASAN
  for (const auto& [address, bytes] : runtime().allocations) {
    auto* begin = reinterpret_cast<void*>(address);
    if (poisoned) {
      __asan_poison_memory_region(begin, bytes);
    } else {
      __asan_unpoison_memory_region(begin, bytes);
    }
  }
#endif
}

void run_stream(const void* stream) {
  auto found = runtime().streams.find(stream);
  if (found == runtime().streams.end()) return;
  const std::vector<std::function<void()>> queue = std::move(found->second);
  runtime().streams.erase(found);
  for (const auto& work : queue) work();
}

void run_all_streams() {
  while (!runtime().streams.empty()) run_stream(runtime().streams.begin()->first);
}

}  // namespace

DeviceMemoryAccess::DeviceMemoryAccess() {
  if (runtime().accesses++ == 0) set_poison(false);
}
DeviceMemoryAccess::~DeviceMemoryAccess() {
  if (--runtime().accesses == 0) set_poison(true);
}

void enqueue(const void* stream, std::function<void()> work) {
  if (options().deferred_streams) {
    runtime().streams[stream].push_back(std::move(work));
  } else {
    work();
  }
}

}  // namespace hetero_spec::simt

using hetero_spec::simt::DeviceMemoryAccess;
using hetero_spec::simt::enqueue;
using hetero_spec::simt::run_all_streams;
using hetero_spec::simt::run_stream;
using hetero_spec::simt::runtime;

extern "C" {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  constexpr std::size_t kAlignment = 256;  // the device's; the end stays exact for AddressSanitizer
  if (address == nullptr) return cudaErrorInvalidValue;
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (posix_memalign(address, kAlignment, bytes) != 0) return cudaErrorMemoryAllocation;
  std::memset(*address, 0xff, bytes);
  runtime().allocations[reinterpret_cast<std::uintptr_t>(*address)] = bytes;
  hetero_spec::simt::traffic::buffer_created(*address, bytes);
  hetero_spec::simt::set_poison(runtime().accesses == 0);
  return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
  if (address == nullptr) return cudaSuccess;
  run_all_streams();  // as the real one, it waits for the device
  const auto found = runtime().allocations.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == runtime().allocations.end()) return cudaErrorInvalidValue;
#if HETERO_SPEC_SIMT_ASAN
  __asan_unpoison_memory_region(address, found->second);
#endif
  runtime().allocations.erase(found);
  hetero_spec::simt::traffic::buffer_released(address);
  std::free(address);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
  enqueue(stream, [=] {
    DeviceMemoryAccess access;
    std::memcpy(to, from, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (address == nullptr) return cudaErrorInvalidValue;
  enqueue(stream, [=] {
    DeviceMemoryAccess access;
    std::memset(address, value, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  run_all_streams();
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  run_all_streams();
  return error;
}

cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  run_all_streams();
  const cudaError_t error = cudaMemsetAsync(address, value, bytes, nullptr);
  run_all_streams();
  return error;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = static_cast<cudaStream_t>(std::malloc(1));
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  run_stream(stream);
  std::free(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  run_stream(stream);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  run_all_streams();
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = hetero_spec::simt::options().multiprocessors;
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = int(hetero_spec::simt::options().shared_limit);
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      *value = 32;
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess ? "cudaSuccess" : "cudaError";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error code of the CUDA runtime's";
}

}  // extern "C"
