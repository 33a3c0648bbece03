// SPDX-License-Identifier: Apache-2.0
// acceptance_overlap: sum over t of min(target(t), draft(t)), the probability that a token drawn
// from the draft law is accepted (Leviathan et al. 2023, arXiv 2211.17192, Theorem 3.5).
//
//   target_logits        float32 | float16 | bfloat16 [rows, V], last stride 1, any row stride
//   draft_logits         float32 | float16 | bfloat16 [rows, Vd], the same
//   draft_stats          float32 [rows, 4] or null: then with the same parameters as the target
//   target_to_draft_ids  int32 [V] or null (same ids; Vd = V)
//   kernel               RDK kernel (common/rdk.h) that redistributes the draft laws, or none
//   params               one value, or one per row
//   overlap              float32 [rows] in [0, 1]; NaN where either row is no law
#pragma once

#include "common/cpu/parallel.h"
#include "common/cpu/row_law_cpu.h"
#include "common/rdk.h"

namespace hetero_spec {

void acceptance_overlap_cpu(const LogitMatrix& target_logits, const LogitMatrix& draft_logits,
                            int64_t num_rows, const RowStats* draft_stats,
                            const int32_t* target_to_draft_ids, const RdkKernel& kernel,
                            const SamplingParams& params, float* overlap, const Parallel& parallel);

}  // namespace hetero_spec
