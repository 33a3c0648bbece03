// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "acceptance_overlap/acceptance_overlap.h"
#include "common/cpu/rdk_cpu.h"
#include "common/cpu/residual.h"

namespace hetero_spec {
namespace {

constexpr int64_t kSpreadGroup =
    16;  // rows whose spread masses, up to V floats each, are held at once

}  // namespace

void acceptance_overlap_cpu(const LogitMatrix& target_logits, const LogitMatrix& draft_logits,
                            int64_t num_rows, const RowStats* draft_stats,
                            const int32_t* target_to_draft_ids, const RdkKernel& kernel,
                            const SamplingParams& params, float* overlap,
                            const Parallel& parallel) {
  std::vector<RowRequest> requests;
  for (int64_t row = 0; row < num_rows; ++row)
    requests.push_back({row, request_params(params, row)});
  std::vector<ChunkSum> scratch;
  std::vector<RowLaw> targets(num_rows), drafts(num_rows);
  compute_row_laws(target_logits, requests.data(), num_rows, false, parallel, &scratch,
                   targets.data());
  if (draft_stats) {
    for (int64_t row = 0; row < num_rows; ++row) drafts[row].stats = draft_stats[row];
  } else {
    LogitMatrix masked = draft_logits;
    DraftMask mask;
    if (target_to_draft_ids) {
      mask = DraftMask::from_target_to_draft(target_to_draft_ids, target_logits.vocab_size,
                                             draft_logits.vocab_size);
      mask.apply_to(&masked);
    }
    compute_row_laws(masked, requests.data(), num_rows, false, parallel, &scratch, drafts.data());
  }
  const int64_t chunks = num_chunks(target_logits.vocab_size);
  std::vector<double> shared(num_rows * chunks);
  std::vector<float> coefficients(kernel.needs_coefficients() ? num_rows * kernel.row_width() : 0);
  const auto draft_of = [&](int64_t row) {
    return DraftRow{draft_logits.row(row), drafts[row].stats, target_to_draft_ids,
                    coefficients.empty() ? nullptr : &coefficients[row * kernel.row_width()]};
  };
  const bool redistributes = kernel.is_given() && !kernel.is_identity();
  const SpreadSources sources(kernel, target_to_draft_ids);
  const bool spreads = sources.size() > 0;
  // min(a, b) = a - max(0, a - b)
  const auto rest = [&](int64_t row, float leaked, const float* masses, int64_t chunk,
                        float* weights) {
    const int n = target_logits.row(row).chunk_size(chunk);
    if (redistributes) {
      return subtract_rdk_chunk(kernel, draft_of(row), leaked, sources.chunk(masses, chunk, n),
                                1.0f, chunk, n, weights);
    }
    return subtract_draft_chunk(draft_logits.row(row), drafts[row].stats, target_to_draft_ids, 1.0f,
                                chunk, n, weights);
  };
  const auto is_law = [&](int64_t row) {
    const RowStats &target = targets[row].stats, &draft = drafts[row].stats;
    return !(is_invalid(target) || is_empty(target) || is_invalid(draft) || is_empty(draft));
  };
  const bool shares_factors = kernel.needs_coefficients();
  if (shares_factors) {
    std::vector<DraftRow> rows;
    std::vector<float*> places;
    for (int64_t row = 0; row < num_rows; ++row) {
      if (!is_law(row)) continue;
      rows.push_back(draft_of(row));
      places.push_back(&coefficients[row * kernel.row_width()]);
    }
    draft_coefficients(kernel, rows, parallel, places.data(), nullptr);
  }
  const int64_t group = spreads ? std::min(kSpreadGroup, num_rows) : num_rows;
  std::vector<float> leaked(redistributes ? group : 0);
  std::vector<float> masses(spreads ? group * sources.size() : 0);
  for (int64_t first = 0; first < num_rows; first += group) {
    const int64_t rows = std::min(group, num_rows - first);
    if (redistributes) {
      parallel_for(parallel, rows, 1, [&](int64_t begin, int64_t end) {
        for (int64_t idx = begin; idx < end; ++idx) {
          leaked[idx] = leaked_mass(kernel, draft_of(first + idx));
          if (spreads) sources.masses(draft_of(first + idx), &masses[idx * sources.size()]);
        }
      });
    }
    parallel_for(parallel, rows * chunks, 2, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        // Rows share a read of a low-rank kernel's factors; else a row stays in the cache.
        const int64_t idx = shares_factors ? task % rows : task / chunks;
        const int64_t chunk = shares_factors ? task / rows : task % chunks, row = first + idx;
        if (!is_law(row)) continue;
        float* weights = chunk_buffer();
        const double target_mass =
            target_chunk_probs(target_logits.row(row), targets[row].stats, chunk, weights);
        shared[row * chunks + chunk] =
            target_mass - rest(row, redistributes ? leaked[idx] : 0.0f,
                               spreads ? &masses[idx * sources.size()] : nullptr, chunk, weights);
      }
    });
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    double sum = 0.0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += shared[row * chunks + chunk];
    overlap[row] = is_law(row) ? static_cast<float>(std::clamp(sum, 0.0, 1.0)) : NAN;
  }
}

}  // namespace hetero_spec
