// SPDX-License-Identifier: Apache-2.0
// The one list of logit types, for every op on every backend.
#pragma once

namespace hetero_spec {

enum class DType : int { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2 };
constexpr int kNumDTypes = 3;

constexpr int element_size(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

}  // namespace hetero_spec
