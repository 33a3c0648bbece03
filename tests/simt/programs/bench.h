// SPDX-License-Identifier: Apache-2.0
// Cases of the SIMT layer's own tests: each runs in a process of its own, chosen by name.
#pragma once
#include <cstddef>
#include <cstdio>

#include "common/gpu.cuh"

namespace simt_bench {

using Run = void (*)();
bool add_case(const char* name, Run run);
void wrong(const char* file, int line, const char* expectation);

// Device memory for the length of a scope, filled by the host through copies only.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size) : size_(size) {
    cudaMalloc(reinterpret_cast<void**>(&data_), size * sizeof(T));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* get() const { return data_; }
  void fill(T value) {
    for (std::size_t index = 0; index < size_; ++index) set(index, value);
  }
  void set(std::size_t index, T value) {
    cudaMemcpy(data_ + index, &value, sizeof(T), cudaMemcpyHostToDevice);
  }
  T operator[](std::size_t index) const {
    T value;
    cudaMemcpy(&value, data_ + index, sizeof(T), cudaMemcpyDeviceToHost);
    return value;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

}  // namespace simt_bench

#define CASE(name)                                                            \
  static void case_##name();                                                  \
  static const bool added_##name = simt_bench::add_case(#name, &case_##name); \
  static void case_##name()
#define EXPECT(expectation) \
  (static_cast<void>((expectation) || (simt_bench::wrong(__FILE__, __LINE__, #expectation), true)))
