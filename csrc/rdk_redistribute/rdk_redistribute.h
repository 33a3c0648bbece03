// SPDX-License-Identifier: Apache-2.0
// rdk_redistribute: an RDK kernel applied to rows of probabilities, written out.
//
//   draft_probs  float32 [rows, V], last stride 1, any row stride: laws over the target's ids (a
//   row
//                of zeros, which is no law, stays one; NaN stays NaN)
//   kernel       the mixture of common/rdk.h, or the low-rank form of common/low_rank.h
//   probs        float32 [rows, V], contiguous
//
// Cost of a row: V and the entries of S; 2 V n with factors. Sums run in float32 inside a chunk and
// in float64 across chunks. Source: Timor et al. 2025 (arXiv 2506.03206); the first-order low-rank
// form is a derivation of this project (docs/rdk.md).
#pragma once

#include "common/cpu/parallel.h"
#include "common/rdk.h"

namespace hetero_spec {

struct RdkRedistribute {
  const float* draft_probs;
  int64_t row_stride;
  int64_t num_rows;
  int64_t vocab_size;
  RdkKernel kernel;
  float* probs;
};

void rdk_redistribute_cpu(const RdkRedistribute& call, const Parallel& parallel);

}  // namespace hetero_spec
