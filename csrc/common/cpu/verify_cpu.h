// SPDX-License-Identifier: Apache-2.0
// Batched verification on the CPU, shared by rejection_sample (laws of logits) and
// rejection_sample_probs (rows of probabilities). The rules are those of
// rejection_sample/rejection_sample.h.
#pragma once

#include <cstdint>

#include "common/cpu/parallel.h"
#include "common/cpu/row_law_cpu.h"
#include "common/ragged.h"
#include "common/rdk.h"
#include "common/uniforms.h"

namespace hetero_spec {

enum class Rule : int { kToken = 0, kBlock = 1 };

// Where target and draft probabilities come from.
struct VerifyInputs {
  LogitMatrix target;                  // [R, V] logits, or float32 probabilities
  bool has_draft_law;                  // false: drafts are one-hot
  LogitMatrix draft;                   // [N, Vd] logits, or float32 probabilities over target ids
  bool are_probs;                      // both matrices hold probabilities
  const RowStats* draft_stats;         // [N] or null: computed here with the request's parameters
  const int32_t* target_to_draft_ids;  // [V] or null: same ids
  RdkKernel kernel;                    // of laws of logits only
  const float* draft_leaked_mass;      // [N], low rank [N, n + 1], or null: computed here where the
                                       // kernel needs it
  SamplingParams params;
  Uniforms uniforms;
  Rule rule;
};

struct VerifyOutputs {
  int32_t* output_token_ids;     // [B, K + 1]
  int32_t* num_accepted_tokens;  // [B]
  int32_t* status;               // [B]
};

void verify(const Ragged& ragged, const VerifyInputs& inputs, const VerifyOutputs& outputs,
            const Parallel& parallel);

}  // namespace hetero_spec
