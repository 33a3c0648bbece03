// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "common/cpu/low_rank_cpu.h"
#include "common/cpu/rdk_cpu.h"
#include "common/philox.h"
#include "common/ragged.h"
#include "draft_sample/draft_sample.h"

namespace hetero_spec {
namespace {

// Inverse CDF over the chunks, then inside one. Chunk masses of an untruncated row are left from
// the pass that made the law; a truncated one is summed again.
int64_t draw_id(const LogitRow& row, const RowStats& law, const ChunkSum* sums, double uniform) {
  const RowKernels& kernels = row_kernels();
  const auto probs_of = [&](int64_t chunk) {
    return kernels.law_probs[static_cast<int>(row.dtype)](
        row.chunk(chunk), row.chunk_size(chunk), row.chunk_mask(chunk), law, chunk_buffer());
  };
  const int64_t chunks = num_chunks(row.vocab_size);
  std::vector<double> masses(chunks);
  double total = 0.0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    masses[chunk] = is_truncated(law) ? probs_of(chunk) : chunk_mass_of(sums[chunk], law);
    total += masses[chunk];
  }
  const double goal = uniform * total;
  double passed = 0.0;
  const int64_t chosen = pick_chunk(masses.data(), chunks, goal, &passed);
  if (chosen < 0) return -1;
  probs_of(chosen);
  const int within = pick_in_chunk(chunk_buffer(), row.chunk_size(chosen), goal - passed);
  return within < 0 ? -1 : chosen * kChunk + within;
}

double uniform_of(const DraftUniforms& uniforms, bool has_kernel, int64_t b, Stream stream) {
  if (!uniforms.samples) return uniform_sample(uniforms.seeds[b], uniforms.positions[b], stream);
  if (!has_kernel) return uniforms.samples[b];
  const int column = stream == Stream::kPropose ? 0 : stream == Stream::kLeak ? 1 : 2;
  return uniforms.samples[3 * b + column];
}

}  // namespace

void draft_sample_cpu(const LogitMatrix& draft_logits, int64_t batch_size,
                      const int32_t* draft_to_target_ids, const int32_t* target_to_draft_ids,
                      const RdkKernel& kernel, const SamplingParams& params,
                      const DraftUniforms& uniforms, const DraftSampleOutputs& outputs,
                      const Parallel& parallel) {
  LogitMatrix masked = draft_logits;
  DraftMask mask;
  if (draft_to_target_ids) {
    mask = DraftMask::from_draft_to_target(draft_to_target_ids, draft_logits.vocab_size);
    mask.apply_to(&masked);
  }
  std::vector<RowRequest> requests;
  for (int64_t b = 0; b < batch_size; ++b) requests.push_back({b, request_params(params, b)});
  std::vector<RowLaw> laws(batch_size);
  std::vector<ChunkSum> sums;
  compute_row_laws(masked, requests.data(), batch_size, true, parallel, &sums, laws.data());
  const int64_t chunks = num_chunks(masked.vocab_size);
  const auto move_to = [&](int64_t b, const DraftRow& draft, float leaked, int64_t token) {
    const int64_t id = target_to_draft_ids ? target_to_draft_ids[token] : token;
    outputs.target_token_ids[b] = static_cast<int32_t>(token);
    outputs.draft_token_ids[b] =
        id >= 0 && id < draft.row.vocab_size ? static_cast<int32_t>(id) : kPlaceholderTokenId;
    outputs.probs[b] = rdk_prob_at(kernel, draft, leaked, token);
  };
  // The token of a request that has drawn from the drafter's law, moved as the kernel says.
  const auto redistribute = [&](int64_t b, const DraftRow& draft) {
    const int64_t source = outputs.target_token_ids[b];
    outputs.leaked_mass[b] = 0.0f;
    if (!has_id(kernel, source)) return;
    const int64_t token =
        redistributed(kernel, source, uniform_of(uniforms, true, b, Stream::kLeak),
                      uniform_of(uniforms, true, b, Stream::kRedraw));
    const float leaked = leaked_mass(kernel, draft);
    outputs.leaked_mass[b] = leaked;
    move_to(b, draft, leaked, token);
  };
  parallel_for(parallel, batch_size, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const LogitRow row = masked.row(b);
      const RowStats& law = laws[b].stats;
      int64_t id = -1;
      if (is_greedy(law)) {
        id = greedy_id(law);
      } else if (!is_invalid(law) && !is_empty(law)) {
        const double uniform = uniform_of(uniforms, kernel.is_given(), b, Stream::kPropose);
        id = draw_id(row, law, &sums[b * chunks], uniform);
      }
      outputs.stats[b] = law;
      outputs.draft_token_ids[b] = static_cast<int32_t>(id);
      outputs.target_token_ids[b] =
          id < 0 ? kPlaceholderTokenId
                 : (draft_to_target_ids ? draft_to_target_ids[id] : static_cast<int32_t>(id));
      outputs.probs[b] = id < 0 ? 0.0f : law_prob(law, row.at(id), id);
      outputs.entropy[b] = id < 0 ? 0.0f : static_cast<float>(laws[b].entropy);
      outputs.max_prob[b] = id < 0 ? 0.0f : is_greedy(law) ? 1.0f : std::exp(-law.log_normalizer);
      if (kernel.is_given() && !kernel.is_low_rank()) {
        redistribute(b, {row, law, target_to_draft_ids});
      }
    }
  });
  if (!kernel.is_low_rank()) return;
  const int64_t width = kernel.row_width(), weight_chunks = num_chunks(kernel.vocab_size);
  std::fill_n(outputs.leaked_mass, batch_size * width, 0.0f);
  if (kernel.is_identity()) return;
  // All requests that have drawn, together: they share the reads of the factors.
  std::vector<int64_t> drawn;
  std::vector<DraftRow> drafts;
  std::vector<float*> coefficients;
  for (int64_t b = 0; b < batch_size; ++b) {
    if (!has_id(kernel, outputs.target_token_ids[b])) continue;
    float* own = outputs.leaked_mass + b * width;
    drawn.push_back(b);
    drafts.push_back({masked.row(b), laws[b].stats, target_to_draft_ids, own});
    coefficients.push_back(own);
  }
  std::vector<double> masses(drawn.size() * weight_chunks);
  draft_coefficients(kernel, drafts, parallel, coefficients.data(), masses.data());
  parallel_for(parallel, static_cast<int64_t>(drawn.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t idx = begin; idx < end; ++idx) {
      const int64_t b = drawn[idx];
      const float total = coefficients[idx][kernel.low_rank.num_factors];
      int64_t token = total > 0.0f && std::isfinite(total) ? outputs.target_token_ids[b] : -1;
      if (token >= 0 && uniform_of(uniforms, true, b, Stream::kLeak) < kernel.low_rank.lam) {
        token = draw_low_rank(kernel.low_rank, coefficients[idx], &masses[idx * weight_chunks],
                              kernel.vocab_size, uniform_of(uniforms, true, b, Stream::kRedraw));
      }
      if (token < 0) {  // broken factors: there is no law to draw from
        outputs.target_token_ids[b] = outputs.draft_token_ids[b] = kPlaceholderTokenId;
        outputs.probs[b] = outputs.entropy[b] = outputs.max_prob[b] = 0.0f;
        continue;
      }
      move_to(b, drafts[idx], 0.0f, token);
    }
  });
}

}  // namespace hetero_spec
