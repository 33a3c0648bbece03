// SPDX-License-Identifier: Apache-2.0
// NumPy arrays in the memory of the simulated device, for the length of one call.
#pragma once
#include <cuda_runtime_api.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/sampling_params.h"
#include "simt/engine.h"

namespace hetero_spec::simt_python {

namespace py = pybind11;

using OptionalArray = std::optional<py::array>;
// (temperature, top_k, top_p, min_p) as arrays or None, then the four values for all.
using Parameters = std::tuple<OptionalArray, OptionalArray, OptionalArray, OptionalArray, float,
                              int32_t, float, float>;

// Names of the device buffers, for reports of the traffic. Buffers of a call are freed with it.
std::map<std::uintptr_t, std::string>& buffer_names();

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": CUDA error " + std::to_string(int(error)));
  }
}

// All device memory of one call. A row may start at any even address: the device copy keeps the
// misalignment of the host array within 16 bytes.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory() {
    for (void* buffer : buffers_) cudaFree(buffer);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* allocate(const char* name, std::size_t bytes) {
    void* buffer = nullptr;
    check(cudaMalloc(&buffer, bytes), "cudaMalloc");
    if (buffer == nullptr) return nullptr;
    buffers_.push_back(buffer);
    buffer_names()[reinterpret_cast<std::uintptr_t>(buffer)] = name;
    return buffer;
  }

  // A matrix with dense rows, or a vector; everything between the rows comes along.
  template <class T>
  const T* upload(const char* name, const py::array& array) {
    if (array.size() == 0) return nullptr;
    std::size_t span = std::size_t(array.itemsize());
    for (py::ssize_t axis = 0; axis < array.ndim(); ++axis) {
      if (array.strides(axis) < 0) throw std::invalid_argument(std::string(name) + ": stride < 0");
      span += std::size_t(array.shape(axis) - 1) * std::size_t(array.strides(axis));
    }
    const std::size_t shift = reinterpret_cast<std::uintptr_t>(array.data()) % 16;
    auto* buffer = static_cast<unsigned char*>(allocate(name, shift + span));
    check(cudaMemcpy(buffer + shift, array.data(), span, cudaMemcpyHostToDevice), "cudaMemcpy");
    return reinterpret_cast<const T*>(buffer + shift);
  }
  template <class T>
  const T* upload(const char* name, const OptionalArray& array) {
    return array.has_value() ? upload<T>(name, *array) : nullptr;
  }

  SamplingParams upload(const Parameters& p) {
    return {upload<float>("temperature", std::get<0>(p)),
            upload<int32_t>("top_k", std::get<1>(p)),
            upload<float>("top_p", std::get<2>(p)),
            upload<float>("min_p", std::get<3>(p)),
            std::get<4>(p),
            std::get<5>(p),
            std::get<6>(p),
            std::get<7>(p)};
  }

 private:
  std::vector<void*> buffers_;
};

// An output: a device buffer that becomes a NumPy array.
template <class T>
class Output {
 public:
  Output(DeviceMemory& memory, const char* name, std::vector<py::ssize_t> shape)
      : host_(shape),
        device_(static_cast<T*>(memory.allocate(name, std::size_t(host_.nbytes())))) {}
  T* device() const { return device_; }
  py::array_t<T> download() {
    if (host_.size() != 0) {
      check(cudaMemcpy(host_.mutable_data(), device_, std::size_t(host_.nbytes()),
                       cudaMemcpyDeviceToHost),
            "cudaMemcpy");
    }
    return host_;
  }

 private:
  py::array_t<T> host_;
  T* device_;
};

inline int64_t row_stride(const py::array& matrix) {
  return matrix.shape(0) > 1 ? matrix.strides(0) / matrix.itemsize() : matrix.shape(1);
}

}  // namespace hetero_spec::simt_python
