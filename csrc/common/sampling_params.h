// SPDX-License-Identifier: Apache-2.0
// Sampling parameters of a batch: one value for all requests, or a pointer to one value per
// request.
#pragma once

#include <cstdint>

#include "common/portability.h"
#include "common/row_law.h"

namespace hetero_spec {

struct SamplingParams {
  const float* temperature;   // [B] or null
  const int32_t* top_k;       // [B] or null
  const float* top_p;         // [B] or null
  const float* min_p;         // [B] or null
  float default_temperature;  // used where the pointer is null; likewise below
  int32_t default_top_k;      // <= 0 or >= vocabulary: off
  float default_top_p;        // >= 1: off
  float default_min_p;        // <= 0: off
};

// The parameters of one request.
struct RequestParams {
  float inv_temperature;  // +inf = greedy, NaN = a parameter makes no sense
  int32_t top_k;
  float top_p;
  float min_p;
};

HETERO_SPEC_HD inline RequestParams request_params(const SamplingParams& params,
                                                   int64_t request_idx) {
  RequestParams out;
  out.inv_temperature = inverse_temperature(params.temperature ? params.temperature[request_idx]
                                                               : params.default_temperature);
  out.top_k = params.top_k ? params.top_k[request_idx] : params.default_top_k;
  out.top_p = params.top_p ? params.top_p[request_idx] : params.default_top_p;
  out.min_p = params.min_p ? params.min_p[request_idx] : params.default_min_p;
  if (!(out.top_p > 0.0f) || !(out.min_p >= 0.0f && out.min_p <= 1.0f)) out.inv_temperature = NAN;
  return out;
}

}  // namespace hetero_spec
