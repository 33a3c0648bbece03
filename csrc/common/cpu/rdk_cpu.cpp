// SPDX-License-Identifier: Apache-2.0
#include "common/cpu/rdk_cpu.h"

#include <algorithm>
#include <cmath>

#include "common/cpu/low_rank_cpu.h"
#include "common/cpu/residual.h"

namespace hetero_spec {
namespace {

// Buffers of one chunk per thread, beside chunk_buffer().
float* draft_buffer() {
  thread_local std::vector<float> buffer(kChunk);
  return buffer.data();
}

float* spread_buffer() {
  thread_local std::vector<float> buffer(kChunk);
  return buffer.data();
}

// What a source gives along its row; nothing of what is no probability.
float spread_mass(float share, float prob) {
  const float mass = share * prob;
  return mass > 0.0f ? mass : 0.0f;
}

// The weights of a low-rank kernel stand for the prior: they last until this thread's next call.
MixTerms low_rank_terms(const RdkKernel& kernel, const float* coefficients, int64_t chunk) {
  thread_local std::vector<float> weights(kChunk);
  const RdkFactors& low_rank = kernel.low_rank;
  const int64_t first = chunk * kChunk;
  const int n = static_cast<int>(std::min<int64_t>(kChunk, kernel.vocab_size - first));
  low_rank_weights(low_rank, coefficients, first, n, weights.data());
  const float share = low_rank.lam / coefficients[low_rank.num_factors];
  return {1.0f - low_rank.lam, nullptr, share, weights.data(), nullptr};
}

MixTerms mix_terms(const RdkKernel& kernel, const float* coefficients, float leaked_mass,
                   const float* spread, int64_t chunk) {
  if (kernel.is_low_rank()) return low_rank_terms(kernel, coefficients, chunk);
  const int64_t first = chunk * kChunk;
  const auto from = [first](const float* all) { return all ? all + first : nullptr; };
  MixTerms terms{};
  terms.keep = kernel.has_constant_leak() ? 1.0f - kernel.constant_leak : 1.0f;
  terms.leak = kernel.has_constant_leak() ? nullptr : from(kernel.leak);
  terms.prior_share = leaked_mass;
  terms.prior = from(kernel.prior);
  terms.extra = spread;
  return terms;
}

}  // namespace

float draft_law_at(const DraftRow& draft, int64_t token) {
  const int64_t id = draft.target_to_draft_ids ? draft.target_to_draft_ids[token] : token;
  if (id < 0 || id >= draft.row.vocab_size) return is_invalid(draft.stats) ? NAN : 0.0f;
  return law_prob(draft.stats, draft.row.at(id), id);
}

void draft_chunk_probs(const DraftRow& draft, int64_t chunk, int n, float* out) {
  const RowStats& stats = draft.stats;
  const int64_t first = chunk * kChunk;
  const int32_t* ids = draft.target_to_draft_ids ? draft.target_to_draft_ids + first : nullptr;
  if (is_invalid(stats) || is_empty(stats)) {
    std::fill_n(out, n, is_invalid(stats) ? NAN : 0.0f);
  } else if (is_greedy(stats)) {
    const int64_t drafted = greedy_id(stats);
    for (int i = 0; i < n; ++i) out[i] = (ids ? ids[i] : first + i) == drafted ? 1.0f : 0.0f;
  } else if (ids) {
    row_kernels().law_probs_of_ids[static_cast<int>(draft.row.dtype)](
        draft.row.logits, draft.row.vocab_size, ids, n, stats, out);
  } else {
    row_kernels().law_probs[static_cast<int>(draft.row.dtype)](draft.row.chunk(chunk), n, nullptr,
                                                               stats, out);
  }
}

float leaked_mass(const RdkKernel& kernel, const DraftRow& draft) {
  if (is_invalid(draft.stats)) return NAN;
  if (is_empty(draft.stats)) return 0.0f;
  if (!kernel.needs_leaked_mass()) return leak_of(kernel, 0);
  const RowKernels& kernels = row_kernels();
  float* probs = draft_buffer();
  double mass = 0.0;
  for (int64_t chunk = 0; chunk < num_chunks(kernel.vocab_size); ++chunk) {
    const int64_t first = chunk * kChunk;
    const int n = static_cast<int>(std::min<int64_t>(kChunk, kernel.vocab_size - first));
    draft_chunk_probs(draft, chunk, n, probs);
    mass += kernels.dot(probs, kernel.leak + first, n);
  }
  return static_cast<float>(mass);
}

void draft_coefficients(const RdkKernel& kernel, const std::vector<DraftRow>& drafts,
                        const Parallel& parallel, float* const* coefficients, double* masses) {
  const auto law = [&](int64_t row, int64_t chunk, int n, float* out) {
    draft_chunk_probs(drafts[row], chunk, n, out);
  };
  low_rank_rows(kernel.low_rank, kernel.vocab_size, static_cast<int64_t>(drafts.size()), law,
                parallel, coefficients, masses, nullptr);
}

float rdk_prob_at(const RdkKernel& kernel, const DraftRow& draft, float leaked_mass,
                  int64_t token) {
  if (is_invalid(draft.stats)) return NAN;
  if (is_empty(draft.stats)) return 0.0f;
  if (kernel.is_low_rank()) {
    float weight;
    low_rank_weights(kernel.low_rank, draft.coefficients, token, 1, &weight);
    return low_rank_prob(kernel.low_rank, draft.coefficients[kernel.low_rank.num_factors], weight,
                         draft_law_at(draft, token));
  }
  return rdk_prob(kernel, token, leaked_mass, [&](int64_t id) { return draft_law_at(draft, id); });
}

SpreadSources::SpreadSources(const RdkKernel& kernel, const int32_t* target_to_draft_ids)
    : kernel_(kernel) {
  if (!kernel.spread) return;
  const int32_t* ids = kernel.spreading_ids;
  const int64_t size = kernel.num_spreading_ids;
  shares_.resize(static_cast<size_t>(size), 0.0f);
  draft_ids_.resize(static_cast<size_t>(size), -1);
  for (int64_t i = 0; i < size; ++i) {
    if (!has_id(kernel, ids[i])) continue;
    shares_[i] = kernel.spread[ids[i]];
    draft_ids_[i] = target_to_draft_ids ? target_to_draft_ids[ids[i]] : ids[i];
  }
  for (int64_t chunk = 0; chunk <= num_chunks(kernel.vocab_size); ++chunk) {
    const int32_t* at = std::lower_bound(ids, ids + size, chunk * kChunk);
    chunk_numbers_.push_back(static_cast<int32_t>(at - ids));
  }
}

void SpreadSources::masses(const DraftRow& draft, float* masses) const {
  if (is_invalid(draft.stats) || is_empty(draft.stats)) {
    std::fill_n(masses, size(), 0.0f);
    return;
  }
  const int dtype = static_cast<int>(draft.row.dtype);
  for (int64_t first = 0; first < size(); first += kChunk) {
    const int n = static_cast<int>(std::min<int64_t>(kChunk, size() - first));
    const int32_t* ids = draft_ids_.data() + first;
    float* out = masses + first;
    if (is_greedy(draft.stats)) {
      const int64_t drafted = greedy_id(draft.stats);
      for (int i = 0; i < n; ++i) out[i] = ids[i] == drafted ? 1.0f : 0.0f;
    } else {
      row_kernels().law_probs_of_ids[dtype](draft.row.logits, draft.row.vocab_size, ids, n,
                                            draft.stats, out);
    }
    for (int i = 0; i < n; ++i) out[i] = spread_mass(shares_[first + i], out[i]);
  }
}

void SpreadSources::masses(const float* law, float* masses) const {
  for (int64_t i = 0; i < size(); ++i) {
    const int64_t id = kernel_.spreading_ids[i];
    masses[i] = has_id(kernel_, id) ? spread_mass(shares_[i], law[id]) : 0.0f;
  }
}

const float* SpreadSources::chunk(const float* masses, int64_t chunk, int n) const {
  if (!masses) return nullptr;
  float* out = spread_buffer();
  std::fill_n(out, n, 0.0f);
  const int64_t first = chunk * kChunk;
  // A place that is not in the chunk is a large number, whichever side it lies on.
  const auto place_of = [first](int32_t id) {
    return static_cast<uint32_t>(id) - static_cast<uint32_t>(first);
  };
  const uint32_t places = static_cast<uint32_t>(n), numbers = static_cast<uint32_t>(size());
  const RdkEntries entries =
      entries_between(kernel_.source_offsets, first, first + n, kernel_.num_entries);
  const int32_t* target_ids = kernel_.entry_target_ids;
  const int32_t* source_numbers = kernel_.entry_source_numbers;
  const float* weights = kernel_.source_weights;
  for (int64_t at = entries.begin; at < entries.end; ++at) {
    const uint32_t place = place_of(target_ids[at]);
    const uint32_t number = static_cast<uint32_t>(source_numbers[at]);
    if ((place < places) & (number < numbers)) out[place] += masses[number] * weights[at];
  }
  for (int64_t number = chunk_numbers_[chunk]; number < chunk_numbers_[chunk + 1]; ++number) {
    const uint32_t place = place_of(kernel_.spreading_ids[number]);
    if (place < places) out[place] -= masses[number];
  }
  return out;
}

void redistribute_chunk(const RdkKernel& kernel, float leaked_mass, const float* spread,
                        int64_t chunk, int n, float* probs) {
  row_kernels().mix(probs, n, mix_terms(kernel, nullptr, leaked_mass, spread, chunk));
}

float rdk_residual_chunk_sum(const LogitRow& target, const RowStats& target_stats,
                             const RdkKernel& kernel, const DraftRow& draft, float leaked_mass,
                             const float* spread, float scale, int64_t chunk, float* out) {
  const int n = target.chunk_size(chunk);
  const RowStats& stats = draft.stats;
  const bool plain = !is_greedy(target_stats) && !is_greedy(stats) && !is_invalid(stats) &&
                     !is_empty(stats) && !draft.target_to_draft_ids;
  if (plain) {
    const MixTerms terms = mix_terms(kernel, draft.coefficients, leaked_mass, spread, chunk);
    return row_kernels()
        .residual_mix_sum[static_cast<int>(target.dtype)][static_cast<int>(draft.row.dtype)](
            target.chunk(chunk), target_stats, scale, draft.row.chunk(chunk), stats, terms, n);
  }
  target_chunk_probs(target, target_stats, chunk, out);
  return subtract_rdk_chunk(kernel, draft, leaked_mass, spread, scale, chunk, n, out);
}

void rdk_chunk_probs(const RdkKernel& kernel, const DraftRow& draft, float leaked_mass,
                     const float* spread, int64_t chunk, int n, float* out) {
  draft_chunk_probs(draft, chunk, n, out);
  if (is_empty(draft.stats)) return;
  row_kernels().mix(out, n, mix_terms(kernel, draft.coefficients, leaked_mass, spread, chunk));
}

float subtract_rdk_chunk(const RdkKernel& kernel, const DraftRow& draft, float leaked_mass,
                         const float* spread, float scale, int64_t chunk, int n, float* out) {
  if (draft.target_to_draft_ids && !is_greedy(draft.stats) && !is_invalid(draft.stats) &&
      !is_empty(draft.stats)) {
    return row_kernels().subtract_mixed_law[static_cast<int>(draft.row.dtype)](
        out, n, scale, draft.row.logits, draft.row.vocab_size, draft.stats,
        draft.target_to_draft_ids + chunk * kChunk,
        mix_terms(kernel, draft.coefficients, leaked_mass, spread, chunk));
  }
  float* probs = draft_buffer();
  rdk_chunk_probs(kernel, draft, leaked_mass, spread, chunk, n, probs);
  return row_kernels().subtract_probs(out, n, scale, probs);
}

}  // namespace hetero_spec
