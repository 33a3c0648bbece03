// SPDX-License-Identifier: Apache-2.0
// Cuts one allocation into the arrays that a launcher needs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hetero_spec {

// With a null base it only adds up sizes, so that the size asked for and the layout cannot
// disagree.
class WorkspaceLayout {
 public:
  explicit WorkspaceLayout(void* base) : base_(static_cast<unsigned char*>(base)) {}

  template <class T>
  T* take(int64_t count) {
    constexpr std::size_t kAlignment = 256;
    used_ = (used_ + kAlignment - 1) / kAlignment * kAlignment;
    T* at = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += static_cast<std::size_t>(count) * sizeof(T);
    return at;
  }
  std::size_t size() const { return used_; }

 private:
  unsigned char* base_;
  std::size_t used_ = 0;
};

}  // namespace hetero_spec
