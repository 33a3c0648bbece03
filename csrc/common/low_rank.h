// SPDX-License-Identifier: Apache-2.0
// Low-rank RDK kernels: n factors over the target's vocabulary, U, stand for a V x V matrix.
//
//   c        =  U^T law                              n coefficients, all that a row needs to know
//   w(t)     =  max(0, 1 + scale * U[t] . c)         a weight is O(n)
//   draft(t) =  (1 - lam) law(t)  +  lam w(t) / Z,   Z = sum_t w(t)
//
// law is the drafter's row law read through the map, scale = 1 / (n tau). Of each row c and Z are
// kept, n + 1 floats in this order: a draft is drawn as a mixture (law, or by inverse CDF from w)
// and tested from them, and only a rejected row's law is evaluated over the vocabulary, chunk by
// chunk. Z is V and the clamped mass, since the columns of U add up to 0: what is clamped is not
// known before every weight is, so that a row costs two reads of U, one of them at the ids where
// the drafter has mass. The CPU shares both among the rows of a batch.
//
// Source: Timor et al. 2025, arXiv 2506.03206; the first-order low-rank form is a derivation of
// this project (docs/rdk.md).
#pragma once

#include <cmath>
#include <cstdint>

#include "common/portability.h"

namespace hetero_spec {

struct RdkFactors {
  const float* factors = nullptr;  // [V, num_factors], U, or null: the kernel is a mixture
  int64_t num_factors = 0;
  float scale = 0.0f;
  float lam = 0.0f;

  HETERO_SPEC_HD bool is_given() const { return factors != nullptr; }
  // Floats that are kept of a row: the coefficients and Z.
  HETERO_SPEC_HD int64_t row_width() const { return num_factors + 1; }
};

// w(t) from U[t] . c. NaN is kept.
HETERO_SPEC_HD inline float low_rank_weight(const RdkFactors& factors, float product) {
  const float weight = fmaf(factors.scale, product, 1.0f);
  return weight < 0.0f ? 0.0f : weight;
}

// Draft probability of one target id from its weight and its probability under the drafter's law.
HETERO_SPEC_HD inline float low_rank_prob(const RdkFactors& factors, float total, float weight,
                                          float law) {
  return fmaf(factors.lam / total, weight, (1.0f - factors.lam) * law);
}

}  // namespace hetero_spec
