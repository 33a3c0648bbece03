// SPDX-License-Identifier: Apache-2.0
// What a CUDA binding needs of torch: the current stream, a workspace, an error as an exception.
#pragma once

#include <dlfcn.h>
#include <driver_types.h>
#include <torch/csrc/stable/accelerator.h>

#include "common/device_logits.cuh"
#include "common/torch/arguments.h"

namespace hetero_spec {

// libtorch_cuda is looked up at the first call, so that this module also builds and loads where
// torch has no CUDA.
inline cudaStream_t current_stream(const Tensor& tensor) {
  using CurrentStream = int32_t (*)(int32_t, void**);
  static const CurrentStream find = [] {
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    void* symbol = library ? dlsym(library, "aoti_torch_get_current_cuda_stream") : nullptr;
    return reinterpret_cast<CurrentStream>(symbol);
  }();
  void* stream = nullptr;
  STD_TORCH_CHECK(find && find(tensor.get_device_index(), &stream) == 0,
                  "hetero_spec: no CUDA stream: this torch was built without CUDA");
  return static_cast<cudaStream_t>(stream);
}

inline Tensor new_workspace(const Tensor& like, std::size_t bytes) {
  return new_tensor(like, {static_cast<int64_t>(bytes)}, ScalarType::Byte);
}

inline void check_launch(cudaError_t error, const char* op) {
  STD_TORCH_CHECK(error == cudaSuccess, op, ": the launch failed with CUDA error ",
                  static_cast<int>(error));
}

inline DeviceLogits device_logits(const LogitMatrix& logits) {
  return {logits.data, logits.dtype, logits.row_stride, logits.vocab_size};
}

}  // namespace hetero_spec
