// SPDX-License-Identifier: Apache-2.0
// RDK kernels (Timor et al. 2025, arXiv 2506.03206): a row-stochastic matrix that moves a draft
// law's mass over the target's vocabulary, here in a form that costs no more than its parts.
//
// A mixture:
//
//   row i  =  (1 - a_i - b_i) delta_i  +  a_i r  +  b_i S_i
//   draft(t)  =  (1 - a_t - b_t) law(t)  +  s r(t)  +  sum_i b_i law(i) S_it,   s = sum_i a_i
//   law(i)
//
// law is the drafter's row law read through the map, a the leak, r the prior, b the spread, S
// sparse rows. A draft is drawn as a mixture (law, then perhaps the prior or a row of S), tested at
// one token through the transposed rows, and evaluated over the vocabulary where it was rejected
// only. A low-rank kernel is the other form: common/low_rank.h.
//
// An index of S, which the CPU reads where it evaluates a chunk of the vocabulary (the device does
// without): the sources that have entries and a share, and of each entry of the form by targets its
// target and the place of its source among those. A chunk's entries lie back to back.
//
// Ids and offsets come from the device: each is held in range, so that a broken kernel gives a
// wrong law but never an access out of bounds.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/low_rank.h"
#include "common/portability.h"

namespace hetero_spec {

// What a launch is compiled for: laws as they are, or redistributed by either form.
enum RdkForm : int { kAsDrawn = 0, kMixture = 1, kLowRank = 2 };

struct RdkKernel {
  int64_t vocab_size = 0;                    // V, the target's; 0: no kernel
  float constant_leak = 0.0f;                // a, where it is one number; NaN: `leak` has it
  const float* leak = nullptr;               // [V] or null (0)
  const float* prior = nullptr;              // [V], r; null only where nothing leaks
  const double* prior_cumulative = nullptr;  // [V]
  const float* spread = nullptr;             // [V], b, or null (0): then none of the following
  const int32_t* row_offsets = nullptr;      // [V + 1], of S by sources
  const int32_t* column_ids = nullptr;       // [entries]
  const float* weights = nullptr;            // [entries]
  const int32_t* source_offsets = nullptr;   // [V + 1], of S by targets
  const int32_t* source_ids = nullptr;       // [entries]
  const float* source_weights = nullptr;     // [entries]
  int64_t num_entries = 0;
  const int32_t* spreading_ids = nullptr;  // [num_spreading_ids], rising
  int64_t num_spreading_ids = 0;
  const int32_t* entry_target_ids = nullptr;      // [entries], as source_ids
  const int32_t* entry_source_numbers = nullptr;  // [entries], of spreading_ids; -1: of none
  RdkFactors low_rank;                            // given: then none of the above but vocab_size

  HETERO_SPEC_HD bool is_given() const { return vocab_size > 0; }
  HETERO_SPEC_HD bool is_low_rank() const { return low_rank.is_given(); }
  HETERO_SPEC_HD bool has_constant_leak() const { return constant_leak == constant_leak; }
  // The mass that leaks has to be summed over the row: it is known neither to be 0 nor constant.
  HETERO_SPEC_HD bool needs_leaked_mass() const {
    return is_given() && !has_constant_leak() && leak != nullptr;
  }
  // Of each row the coefficients of a low-rank kernel are needed.
  HETERO_SPEC_HD bool needs_coefficients() const { return is_low_rank() && low_rank.lam != 0.0f; }
  // Floats that are kept of each row.
  HETERO_SPEC_HD int64_t row_width() const { return is_low_rank() ? low_rank.row_width() : 1; }
  // Known to leave every law as it is.
  HETERO_SPEC_HD bool is_identity() const {
    if (is_low_rank()) return low_rank.lam == 0.0f;
    return spread == nullptr && (has_constant_leak() ? constant_leak == 0.0f : leak == nullptr);
  }
  HETERO_SPEC_HD RdkForm form() const {
    if (!is_given() || is_identity()) return kAsDrawn;
    return is_low_rank() ? kLowRank : kMixture;
  }
};

HETERO_SPEC_HD inline float leak_of(const RdkKernel& kernel, int64_t token) {
  if (kernel.has_constant_leak()) return kernel.constant_leak;
  return kernel.leak != nullptr ? kernel.leak[token] : 0.0f;
}

HETERO_SPEC_HD inline float spread_of(const RdkKernel& kernel, int64_t token) {
  return kernel.spread != nullptr ? kernel.spread[token] : 0.0f;
}

// Entries [begin, end) of one row, or of the rows of ids [first, end).
struct RdkEntries {
  int64_t begin, end;
};

HETERO_SPEC_HD inline RdkEntries entries_between(const int32_t* offsets, int64_t first, int64_t end,
                                                 int64_t num_entries) {
  return {offsets[first] < 0 ? 0 : offsets[first],
          offsets[end] > num_entries ? num_entries : offsets[end]};
}

HETERO_SPEC_HD inline RdkEntries entries_of(const int32_t* offsets, int64_t id,
                                            int64_t num_entries) {
  return entries_between(offsets, id, id + 1, num_entries);
}

HETERO_SPEC_HD inline bool has_id(const RdkKernel& kernel, int64_t id) {
  return id >= 0 && id < kernel.vocab_size;
}

// Draft probability of one target id under a mixture; law(t) is the drafter's, `leaked_mass` is s.
// Drawing and testing a token both come here, so that the law of the draw is the law of the test.
// Fused multiply-adds are written out: a compiler may not choose differently in two places.
template <class Law>
HETERO_SPEC_HD inline float rdk_prob(const RdkKernel& kernel, int64_t token, float leaked_mass,
                                     Law law) {
  const float keep = 1.0f - leak_of(kernel, token) - spread_of(kernel, token);
  float prob = keep * law(token);
  if (kernel.prior != nullptr) prob = fmaf(leaked_mass, kernel.prior[token], prob);
  if (kernel.spread == nullptr) return prob;
  const RdkEntries entries = entries_of(kernel.source_offsets, token, kernel.num_entries);
  for (int64_t at = entries.begin; at < entries.end; ++at) {
    const int64_t source = kernel.source_ids[at];
    if (!has_id(kernel, source)) continue;
    const float spread_mass = kernel.spread[source] * law(source);
    prob = fmaf(spread_mass, kernel.source_weights[at], prob);
  }
  return prob;
}

// First id whose cumulative prior exceeds uniform * total: never one of prior 0.
HETERO_SPEC_HD inline int64_t draw_from_prior(const RdkKernel& kernel, double uniform) {
  const double total = kernel.prior_cumulative[kernel.vocab_size - 1];
  const double goal = uniform * total;
  // Rounded up to the total no id would exceed it: then the first that reaches it is the last with
  // mass.
  const bool reaches = !(goal < total);
  int64_t low = 0, high = kernel.vocab_size - 1;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const double mass = kernel.prior_cumulative[middle];
    if (reaches ? mass >= total : mass > goal) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// The same in row `source` of S, over the entries whose id is in range; `source` where there are
// none.
HETERO_SPEC_HD inline int64_t draw_from_row(const RdkKernel& kernel, int64_t source,
                                            double uniform) {
  const RdkEntries entries = entries_of(kernel.row_offsets, source, kernel.num_entries);
  double total = 0.0;
  for (int64_t at = entries.begin; at < entries.end; ++at) {
    if (has_id(kernel, kernel.column_ids[at])) total += kernel.weights[at];
  }
  const double goal = uniform * total;
  double passed = 0.0;
  int64_t last = source;
  for (int64_t at = entries.begin; at < entries.end; ++at) {
    const int64_t id = kernel.column_ids[at];
    if (!has_id(kernel, id) || !(kernel.weights[at] > 0.0f)) continue;
    passed += kernel.weights[at];
    last = id;
    if (passed > goal) return id;
  }
  return last;
}

// Where the mass of `source`, drawn from the drafter's law, goes.
HETERO_SPEC_HD inline int64_t redistributed(const RdkKernel& kernel, int64_t source,
                                            double leak_uniform, double redraw_uniform) {
  const double leak = leak_of(kernel, source);
  if (leak_uniform < leak && kernel.prior_cumulative != nullptr) {
    return draw_from_prior(kernel, redraw_uniform);
  }
  if (leak_uniform < leak + spread_of(kernel, source)) {
    return draw_from_row(kernel, source, redraw_uniform);
  }
  return source;
}

}  // namespace hetero_spec
