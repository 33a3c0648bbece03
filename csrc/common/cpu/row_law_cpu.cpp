// SPDX-License-Identifier: Apache-2.0
#include "common/cpu/row_law_cpu.h"

#include <cmath>

namespace hetero_spec {
namespace {

// Tasks of one chunk are a few microseconds: threads take several at a time.
constexpr int64_t kChunkGrain = 4;

// Lowest id of the chunk that holds the value; the chunk is known to hold it.
int64_t lowest_id_with(const LogitRow& row, int64_t chunk, float value) {
  const int64_t begin = chunk * kChunk;
  for (int64_t id = begin; id < begin + row.chunk_size(chunk); ++id) {
    const bool counts = !row.mask || (row.mask[id / kMaskBits] >> (id % kMaskBits) & 1);
    if (counts && row.at(id) == value) return id;
  }
  return begin;
}

RowLaw finish_row(const LogitRow& row, const RequestParams& params, const ChunkSum* sums,
                  const float* weighted_sums, bool want_entropy) {
  const int64_t chunks = num_chunks(row.vocab_size);
  float max_logit = -INFINITY;
  int64_t best_chunk = 0;
  bool invalid = std::isnan(params.inv_temperature);
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    invalid |= std::isnan(sums[chunk].sum);
    if (sums[chunk].max_logit > max_logit) {
      max_logit = sums[chunk].max_logit;
      best_chunk = chunk;
    }
  }
  if (invalid || max_logit == INFINITY) return {invalid_stats(), 0.0, 0.0};
  if (max_logit == -INFINITY) return {empty_stats(params.inv_temperature), 0.0, 0.0};
  if (std::isinf(params.inv_temperature)) {
    return {greedy_stats(max_logit, lowest_id_with(row, best_chunk, max_logit)), 0.0, 1.0};
  }

  // Chunks are combined in float64 and in vocabulary order.
  const double scale = params.inv_temperature;
  double total = 0.0, weighted = 0.0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (sums[chunk].sum == 0.0f) continue;
    const double shift = (static_cast<double>(sums[chunk].max_logit) - max_logit) * scale;
    const double factor = std::exp(shift);
    total += sums[chunk].sum * factor;
    // In the chunk y was relative to the chunk's own maximum: y_row = y_chunk + shift. An
    // underflowed factor adds 0.
    if (want_entropy && factor > 0.0)
      weighted += factor * (weighted_sums[chunk] + shift * sums[chunk].sum);
  }
  RowStats stats{max_logit, params.inv_temperature, 0.0f, -INFINITY};
  double kept = total;
  if (has_truncation(params, row.num_ids)) {
    const Truncation truncation = truncate_row(row, params, sums, max_logit, total, want_entropy);
    stats.cutoff = truncation.cutoff;
    kept = truncation.kept_sum;
    weighted = truncation.kept_weighted_sum;
  }
  stats.log_normalizer = static_cast<float>(std::log(kept));
  const double entropy = want_entropy ? std::log(kept) - weighted / kept : 0.0;
  return {stats, entropy > 0.0 ? entropy : 0.0, total};
}

}  // namespace

LogitMatrix unmasked(const void* data, DType dtype, int64_t row_stride, int64_t vocab_size) {
  return {data, dtype, row_stride, vocab_size, nullptr, vocab_size};
}

DraftMask DraftMask::from_draft_to_target(const int32_t* map, int64_t draft_vocab_size) {
  DraftMask out;
  out.words_.resize(mask_words(draft_vocab_size));
  row_kernels().mask_from_map(map, draft_vocab_size, out.words_.data());
  for (const uint16_t word : out.words_) out.num_ids_ += __builtin_popcount(word);
  return out;
}

DraftMask DraftMask::from_target_to_draft(const int32_t* map, int64_t target_vocab_size,
                                          int64_t draft_vocab_size) {
  DraftMask out;
  out.words_.resize(mask_words(draft_vocab_size));
  for (int64_t target_id = 0; target_id < target_vocab_size; ++target_id) {
    const int64_t id = map[target_id];
    if (id >= 0 && id < draft_vocab_size)
      out.words_[id / kMaskBits] |= static_cast<uint16_t>(1u << (id % kMaskBits));
  }
  for (const uint16_t word : out.words_) out.num_ids_ += __builtin_popcount(word);
  return out;
}

void DraftMask::apply_to(LogitMatrix* logits) const {
  logits->mask = words_.data();
  logits->num_ids = num_ids_;
}

void compute_row_laws(const LogitMatrix& logits, const RowRequest* requests, int64_t num_rows,
                      bool want_entropy, const Parallel& parallel,
                      std::vector<ChunkSum>* chunk_sums, RowLaw* laws) {
  const RowKernels& kernels = row_kernels();
  const int dtype = static_cast<int>(logits.dtype);
  const int64_t chunks = num_chunks(logits.vocab_size);
  chunk_sums->resize(static_cast<size_t>(num_rows * chunks));
  std::vector<float> weighted_sums(want_entropy ? static_cast<size_t>(num_rows * chunks) : 0);
  parallel_for(parallel, num_rows * chunks, kChunkGrain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const RowRequest& request = requests[task / chunks];
      const LogitRow row = logits.row(request.row);
      const int64_t chunk = task % chunks;
      // A greedy row needs the maximum only, and its NaNs found: any finite scale serves.
      const float inv_temperature =
          std::isfinite(request.params.inv_temperature) ? request.params.inv_temperature : 1.0f;
      if (want_entropy) {
        kernels.chunk_sum_entropy[dtype](row.chunk(chunk), row.chunk_size(chunk),
                                         row.chunk_mask(chunk), inv_temperature,
                                         &(*chunk_sums)[task], &weighted_sums[task]);
      } else {
        kernels.chunk_sum[dtype](row.chunk(chunk), row.chunk_size(chunk), row.chunk_mask(chunk),
                                 inv_temperature, &(*chunk_sums)[task]);
      }
    }
  });
  // Only a truncated row has work left that is worth a thread.
  bool truncated = false;
  for (int64_t idx = 0; idx < num_rows; ++idx)
    truncated |= has_truncation(requests[idx].params, logits.num_ids);
  parallel_for(parallel, num_rows, truncated ? 1 : num_rows, [&](int64_t begin, int64_t end) {
    for (int64_t idx = begin; idx < end; ++idx) {
      laws[idx] = finish_row(logits.row(requests[idx].row), requests[idx].params,
                             &(*chunk_sums)[idx * chunks],
                             want_entropy ? &weighted_sums[idx * chunks] : nullptr, want_entropy);
    }
  });
}

int64_t lowest_argmax(const LogitRow& row) {
  const RowKernels& kernels = row_kernels();
  float largest = -INFINITY;
  int64_t best_chunk = -1;
  for (int64_t chunk = 0; chunk < num_chunks(row.vocab_size); ++chunk) {
    float maxima[kGroupsPerChunk];
    const int size = row.chunk_size(chunk);
    kernels.group_max[static_cast<int>(row.dtype)](row.chunk(chunk), size, row.chunk_mask(chunk),
                                                   maxima);
    for (int group = 0; group * kMaxGroup < size; ++group) {
      if (maxima[group] > largest) {
        largest = maxima[group];
        best_chunk = chunk;
      }
    }
  }
  return best_chunk < 0 ? 0 : lowest_id_with(row, best_chunk, largest);
}

double chunk_mass_of(const ChunkSum& sum, const RowStats& stats) {
  if (sum.sum == 0.0f) return 0.0;
  const double y = (static_cast<double>(sum.max_logit) - stats.max_logit) * stats.inv_temperature;
  return sum.sum * std::exp(y - stats.log_normalizer);
}

int64_t pick_chunk(const double* masses, int64_t num_chunks, double goal, double* passed) {
  *passed = 0.0;
  int64_t chosen = -1;
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    if (!(masses[chunk] > 0.0)) continue;
    if (chosen >= 0) *passed += masses[chosen];
    chosen = chunk;
    if (*passed + masses[chunk] > goal) break;
  }
  return chosen;
}

int pick_in_chunk(const float* weights, int n, double remaining) {
  double cumulative = 0.0;
  int last = -1;
  for (int i = 0; i < n; ++i) {
    if (!(weights[i] > 0.0f)) continue;
    cumulative += weights[i];
    last = i;
    if (cumulative > remaining) return i;
  }
  return last;
}

float* chunk_buffer() {
  thread_local std::vector<float> buffer(kChunk);
  return buffer.data();
}

}  // namespace hetero_spec
