// SPDX-License-Identifier: Apache-2.0
// remap_probs: a drafter's law over the target's vocabulary, written out (token-level intersection,
// TLI).
//
//   draft_logits         float32 | float16 | bfloat16 [rows, Vd], last stride 1, any row stride
//   draft_to_target_ids  int32 [Vd], -1 = not shared; entries at or beyond V count as -1. Injective
//   where >= 0. params               one value, or one per row; truncation acts on what the map
//   leaves probs                float32 [rows, V], written whole: 0 where no drafter token stands
//   for the id. A row without a
//                        law is all 0 (nothing shared, or no finite logit) or all NaN (NaN or +inf
//                        among its logits).
//
// Source: Timor et al. 2025 (arXiv 2502.05202), token-level intersection: q'(t) = q(d) / sum of q
// over the shared ids.
#pragma once

#include "common/cpu/parallel.h"
#include "common/cpu/row_law_cpu.h"

namespace hetero_spec {

void remap_probs_cpu(const LogitMatrix& draft_logits, int64_t num_rows,
                     const int32_t* draft_to_target_ids, int64_t target_vocab_size,
                     const SamplingParams& params, float* probs, const Parallel& parallel);

}  // namespace hetero_spec
