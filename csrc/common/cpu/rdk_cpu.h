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

// The sources of S as one call and one map see them; made where a row is first evaluated over the
// vocabulary. Empty without S.
class SpreadSources {
 public:
  SpreadSources(const RdkKernel& kernel, const int32_t* target_to_draft_ids);

  int64_t size() const { return static_cast<int64_t>(shares_.size()); }

  // masses[i] = b law of source i: size() floats, from which `chunk` is made.
  void masses(const DraftRow& draft, float* masses) const;
  // The same of a law over the target's ids.
  void masses(const float* law, float* masses) const;

  // What S brings to each of the n ids of a chunk less what it takes away, in a buffer of this
  // thread. Null for null masses: S moves nothing.
  const float* chunk(const float* masses, int64_t chunk, int n) const;

 private:
  const RdkKernel& kernel_;
  std::vector<int32_t> draft_ids_;      // of each source, -1: it has no mass
  std::vector<float> shares_;           // b of each source
  std::vector<int32_t> chunk_numbers_;  // [chunks + 1], the first source of each chunk
};

// Draft probabilities of the n target ids of a chunk. `spread`, here and below, is what
// SpreadSources::chunk gave for the chunk.
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
