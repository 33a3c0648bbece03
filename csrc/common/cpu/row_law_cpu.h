// SPDX-License-Identifier: Apache-2.0
// Row laws on the CPU: from logits to RowStats, and draws from a law. Shared by all ops.
#pragma once

#include <cstdint>
#include <vector>

#include "common/cpu/cutoff.h"
#include "common/cpu/parallel.h"
#include "common/cpu/row_kernels.h"
#include "common/row_law.h"
#include "common/sampling_params.h"

namespace hetero_spec {

// A matrix of logits: rows of vocab_size values, row_stride values apart.
struct LogitMatrix {
  const void* data;
  DType dtype;
  int64_t row_stride;
  int64_t vocab_size;
  const uint16_t* mask = nullptr;  // one for all rows
  int64_t num_ids = 0;             // ids that the mask leaves; vocab_size without a mask

  LogitRow row(int64_t idx) const {
    return {static_cast<const char*>(data) + idx * row_stride * element_size(dtype), dtype,
            vocab_size, mask, num_ids};
  }
};

LogitMatrix unmasked(const void* data, DType dtype, int64_t row_stride, int64_t vocab_size);

// The ids of a drafter that the target shares, as a mask over the drafter's vocabulary.
class DraftMask {
 public:
  // From the forward map, or from the inverse one (ids at or beyond draft_vocab_size are ignored).
  static DraftMask from_draft_to_target(const int32_t* map, int64_t draft_vocab_size);
  static DraftMask from_target_to_draft(const int32_t* map, int64_t target_vocab_size,
                                        int64_t draft_vocab_size);
  void apply_to(LogitMatrix* logits) const;

 private:
  std::vector<uint16_t> words_;
  int64_t num_ids_ = 0;
};

struct RowRequest {
  int64_t row;  // in the matrix
  RequestParams params;
};

struct RowLaw {
  RowStats stats;
  double entropy;    // nats; only if asked for
  double total_sum;  // of the chunk sums relative to max_logit (before truncation)
};

// Laws of many rows at once, threaded over rows and chunks; each chunk is read from memory once.
// chunk_sums receives num_chunks entries a row (scratch, which a draw from an untruncated law can
// use again).
void compute_row_laws(const LogitMatrix& logits, const RowRequest* requests, int64_t num_rows,
                      bool want_entropy, const Parallel& parallel,
                      std::vector<ChunkSum>* chunk_sums, RowLaw* laws);

// Lowest id whose logit equals the largest one that is not NaN; 0 if there is none.
int64_t lowest_argmax(const LogitRow& row);

// Mass of a chunk under an untruncated law, from the sums that the pass over the row left.
double chunk_mass_of(const ChunkSum& sum, const RowStats& stats);

// First chunk whose cumulative mass exceeds `goal`; the last one with mass if rounding leaves none,
// -1 if no chunk has mass. `passed` receives the mass of the chunks before it.
int64_t pick_chunk(const double* masses, int64_t num_chunks, double goal, double* passed);

// First id of the chunk whose cumulative weight exceeds `remaining`; the last id with weight if
// rounding leaves none, -1 if the chunk has no weight.
int pick_in_chunk(const float* weights, int n, double remaining);

// A buffer of one chunk per thread.
float* chunk_buffer();

}  // namespace hetero_spec
