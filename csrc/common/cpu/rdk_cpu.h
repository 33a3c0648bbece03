// SPDX-License-Identifier: Apache-2.0
// A draft law over the target's ids on the CPU: a drafter's row law read through the map and, where
// a kernel is given, redistributed by it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/cpu/cutoff.h"
#include "common/cpu/parallel.h"
#include "common/rdk.h"
#include "common/row_law.h"

namespace hetero_spec {

// A drafter's row, its law, and the map through which it is read.
struct DraftRow {
  LogitRow row;
  RowStats stats;
  const int32_t* target_to_draft_ids;   // [V] or null: same ids
  const float* coefficients = nullptr;  // [n + 1], with a low-rank kernel that moves anything
};

// Probability of a target id under the drafter's law alone.
float draft_law_at(const DraftRow& draft, int64_t token);

// The drafter's law at the n target ids of a chunk; NaN for an invalid row.
void draft_chunk_probs(const DraftRow& draft, int64_t chunk, int n, float* out);

// s = sum_i a_i law(i), float32 in a chunk and float64 across them. 0 for an empty law.
float leaked_mass(const RdkKernel& kernel, const DraftRow& draft);

// What a low-rank kernel keeps of each row, none of which is empty or invalid: n + 1 floats each,
// and the masses of its weights [rows, chunks] where `masses` is given.
void draft_coefficients(const RdkKernel& kernel, const std::vector<DraftRow>& drafts,
                        const Parallel& parallel, float* const* coefficients, double* masses);

// Draft probability of one target id: what draft_sample reports and verification finds, bit for
// bit.
float rdk_prob_at(const RdkKernel& kernel, const DraftRow& draft, float leaked_mass, int64_t token);

// The ids whose mass S spreads, found once a call: most rows of S are empty.
std::vector<int32_t> spreading_ids(const RdkKernel& kernel, const int32_t* target_to_draft_ids);

// out[t] = sum_i b_i law(i) S_it - b_t law(t) over [0, V): what S brings to t, less what it takes
// away. `ids` are spreading_ids.
void spread_mass(const RdkKernel& kernel, const DraftRow& draft, const std::vector<int32_t>& ids,
                 float* out);

// Draft probabilities of the n target ids of a chunk. `spread` is what spread_mass gave (null
// without S).
void rdk_chunk_probs(const RdkKernel& kernel, const DraftRow& draft, float leaked_mass,
                     const float* spread, int64_t chunk, int n, float* out);

// The kernel, a mixture, applied to a chunk of the drafter's law, in place.
void redistribute_chunk(const RdkKernel& kernel, float leaked_mass, const float* spread,
                        int64_t chunk, int n, float* probs);

// Sum over a chunk of max(0, scale * target probability - draft probability), in one loop where
// both laws are plain and share their ids. `out` is scratch of a chunk.
float rdk_residual_chunk_sum(const LogitRow& target, const RowStats& target_stats,
                             const RdkKernel& kernel, const DraftRow& draft, float leaked_mass,
                             const float* spread, float scale, int64_t chunk, float* out);

// out = max(0, scale * out - draft probability) over a chunk; returns the sum.
float subtract_rdk_chunk(const RdkKernel& kernel, const DraftRow& draft, float leaked_mass,
                         const float* spread, float scale, int64_t chunk, int n, float* out);

}  // namespace hetero_spec
