// SPDX-License-Identifier: Apache-2.0
// Checks of tensors before a kernel sees their pointers, shared by all bindings and both backends.
//
// The Python wrappers raise the same complaints earlier, as ValueError and TypeError; these guard
// callers of torch.ops.hetero_spec directly. None of them looks at a value on the device. Message
// form:
// `<op>: <argument> must be <expectation>, got <actual>`.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <sstream>
#include <string>

#include "common/dtype.h"
#include "common/row_law.h"

namespace hetero_spec {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

inline std::string shape_of(const Tensor& tensor) {
  std::ostringstream out;
  out << '[';
  for (int64_t i = 0; i < tensor.dim(); ++i) out << (i ? ", " : "") << tensor.size(i);
  out << ']';
  return out.str();
}

inline DType dtype_of(const Tensor& tensor, const char* op, const char* argument) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float:
      return DType::kFloat32;
    case ScalarType::Half:
      return DType::kFloat16;
    case ScalarType::BFloat16:
      return DType::kBFloat16;
    default:
      STD_TORCH_CHECK(false, op, ": ", argument,
                      " must be float32, float16 or bfloat16, got dtype ",
                      static_cast<int>(tensor.scalar_type()));
  }
}

inline void check_logits(const Tensor& tensor, const char* op, const char* argument) {
  STD_TORCH_CHECK(tensor.dim() == 2, op, ": ", argument, " must be 2-dimensional, got ",
                  shape_of(tensor));
  STD_TORCH_CHECK(tensor.size(1) >= 1 && tensor.size(1) <= kMaxVocabSize, op, ": ", argument,
                  " must be 1 to ", kMaxVocabSize, " ids wide, got ", shape_of(tensor));
  STD_TORCH_CHECK(tensor.size(1) == 1 || tensor.stride(1) == 1, op, ": ", argument,
                  " must be contiguous along the vocabulary, got stride ", tensor.stride(1));
}

// A contiguous vector or matrix of a fixed type and shape; -1 = any size.
inline void check_dense(const Tensor& tensor, ScalarType dtype,
                        std::initializer_list<int64_t> shape, const char* op,
                        const char* argument) {
  bool matches =
      tensor.scalar_type() == dtype && tensor.dim() == static_cast<int64_t>(shape.size());
  int64_t axis = 0;
  for (const int64_t size : shape) {
    if (matches && size >= 0) matches = tensor.size(axis) == size;
    ++axis;
  }
  std::ostringstream expected;
  axis = 0;
  for (const int64_t size : shape)
    expected << (axis++ ? ", " : "") << (size < 0 ? std::string("any") : std::to_string(size));
  STD_TORCH_CHECK(matches, op, ": ", argument, " must be [", expected.str(), "] of dtype ",
                  static_cast<int>(dtype), ", got ", shape_of(tensor), " of dtype ",
                  static_cast<int>(tensor.scalar_type()));
  STD_TORCH_CHECK(tensor.is_contiguous(), op, ": ", argument, " must be contiguous, got strides");
}

inline void check_same_device(const Tensor& tensor, const Tensor& reference, const char* op,
                              const char* argument) {
  STD_TORCH_CHECK(tensor.device() == reference.device(), op, ": ", argument,
                  " must be on the device of the logits, got another");
}

// A tensor that the caller wants a result in.
inline void check_output(const Tensor& tensor, ScalarType dtype,
                         std::initializer_list<int64_t> shape, const Tensor& reference,
                         const char* op, const char* argument) {
  check_dense(tensor, dtype, shape, op, argument);
  check_same_device(tensor, reference, op, argument);
}

// Pointer of an optional tensor after its checks; null if absent.
template <class T>
const T* optional_data(const std::optional<Tensor>& tensor, ScalarType dtype,
                       std::initializer_list<int64_t> shape, const Tensor& reference,
                       const char* op, const char* argument) {
  if (!tensor.has_value()) return nullptr;
  check_dense(*tensor, dtype, shape, op, argument);
  check_same_device(*tensor, reference, op, argument);
  return static_cast<const T*>(tensor->const_data_ptr());
}

}  // namespace hetero_spec
