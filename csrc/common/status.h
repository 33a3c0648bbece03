// SPDX-License-Identifier: Apache-2.0
// What only the device can see goes wrong, one bit each, per request. hetero_spec/ops/status.py has
// the same table.
#pragma once

#include <cstdint>

namespace hetero_spec {

constexpr int32_t kTargetNan = 1;        // NaN or +inf in a target row that was read
constexpr int32_t kTargetEmpty = 2;      // a target row without a single finite logit
constexpr int32_t kDraftOutOfRange = 4;  // a draft id that is no id of the target's vocabulary
constexpr int32_t kDraftZero = 8;        // the declared draft law is 0 or NaN at the drafted token
constexpr int32_t kResidualEmpty =
    16;  // residual without mass: the target law was drawn from instead
constexpr int32_t kInvalidParameter = 32;  // temperature, top_p or min_p that makes no sense

}  // namespace hetero_spec
