// SPDX-License-Identifier: Apache-2.0
// Where the random numbers of a verification come from: the caller's tensor, or seeds and
// positions.
#pragma once

#include <cstdint>

#include "common/philox.h"
#include "common/portability.h"

namespace hetero_spec {

struct Uniforms {
  const double* samples;     // [R, 2] (accept, resample), or null: then
  const int64_t* seeds;      // [B]
  const int64_t* positions;  // [B] sequence position of each request's first target row
};

HETERO_SPEC_HD inline double accept_uniform(const Uniforms& uniforms, int64_t request_idx,
                                            int64_t row, int64_t position) {
  if (uniforms.samples) return uniforms.samples[2 * row];
  return uniform_sample(uniforms.seeds[request_idx], uniforms.positions[request_idx] + position,
                        Stream::kAccept);
}

HETERO_SPEC_HD inline double resample_uniform(const Uniforms& uniforms, int64_t request_idx,
                                              int64_t row, int64_t position) {
  if (uniforms.samples) return uniforms.samples[2 * row + 1];
  return uniform_sample(uniforms.seeds[request_idx], uniforms.positions[request_idx] + position,
                        Stream::kResample);
}

}  // namespace hetero_spec
