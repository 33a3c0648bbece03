// SPDX-License-Identifier: Apache-2.0
// What launchers share: grids, and the one place where a dtype becomes a template argument.
#pragma once

#include <type_traits>

#include "common/dtype.h"
#include "common/gpu.cuh"
#include "common/rdk.h"
#include "common/sampling_params.h"

namespace hetero_spec {

inline unsigned blocks_for(int64_t items, int64_t items_per_block) {
  return static_cast<unsigned>((items + items_per_block - 1) / items_per_block);
}

// One row a (y, z): y alone ends at 65535.
inline dim3 row_grid(unsigned blocks_per_row, int64_t num_rows) {
  constexpr int64_t kMostRows = 65535;
  const int64_t y = num_rows < kMostRows ? num_rows : kMostRows;
  return dim3(blocks_per_row, static_cast<unsigned>(y), blocks_for(num_rows, y));
}

// Whether any request may be truncated: without tensors the host knows, and launches leaner
// kernels.
inline bool may_truncate(const SamplingParams& params) {
  return params.top_k != nullptr || params.top_p != nullptr || params.min_p != nullptr ||
         params.default_top_k > 0 || params.default_top_p < 1.0f || params.default_min_p > 0.0f;
}

template <class T>
struct TypeTag {
  using type = T;
};

// Calls launch(TypeTag<T>, bool_constant) for the dtype and flag at hand.
template <class Launch>
cudaError_t dispatch(DType dtype, bool flag, Launch&& launch) {
  const auto with_flag = [&](auto type) {
    return flag ? launch(type, std::true_type{}) : launch(type, std::false_type{});
  };
  switch (dtype) {
    case DType::kFloat32:
      return with_flag(TypeTag<float>{});
    case DType::kFloat16:
      return with_flag(TypeTag<__half>{});
    case DType::kBFloat16:
      return with_flag(TypeTag<__nv_bfloat16>{});
  }
  return cudaErrorInvalidValue;
}

// Calls launch(integral_constant) for the form at hand.
template <class Launch>
cudaError_t with_form(RdkForm form, Launch&& launch) {
  switch (form) {
    case kAsDrawn:
      return launch(std::integral_constant<int, kAsDrawn>{});
    case kMixture:
      return launch(std::integral_constant<int, kMixture>{});
    case kLowRank:
      return launch(std::integral_constant<int, kLowRank>{});
  }
  return cudaErrorInvalidValue;
}

}  // namespace hetero_spec
