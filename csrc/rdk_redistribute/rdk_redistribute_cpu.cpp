// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "common/cpu/low_rank_cpu.h"
#include "common/cpu/rdk_cpu.h"
#include "common/cpu/row_kernels.h"
#include "rdk_redistribute/rdk_redistribute.h"

namespace hetero_spec {
namespace {

int chunk_size(int64_t vocab_size, int64_t chunk) {
  return static_cast<int>(std::min<int64_t>(kChunk, vocab_size - chunk * kChunk));
}

// Sum over the row of x[i] * y[i] (of x[i] where y is null).
double sum_of(const float* x, const float* y, int64_t vocab_size) {
  double sum = 0.0;
  for (int64_t chunk = 0; chunk < num_chunks(vocab_size); ++chunk) {
    const int64_t first = chunk * kChunk;
    const int n = chunk_size(vocab_size, chunk);
    sum += y ? row_kernels().dot(x + first, y + first, n) : row_kernels().sum(x + first, n);
  }
  return sum;
}

void mix_row(const RdkRedistribute& call, const SpreadSources& sources, const float* law,
             float* out) {
  const RdkKernel& kernel = call.kernel;
  const int64_t vocab_size = call.vocab_size;
  // A constant leak takes its share of what the row holds: nothing, of a row that is no law.
  const double leaked = kernel.needs_leaked_mass()
                            ? sum_of(law, kernel.leak, vocab_size)
                            : leak_of(kernel, 0) * sum_of(law, nullptr, vocab_size);
  std::vector<float> spread(static_cast<size_t>(sources.size()));
  sources.masses(law, spread.data());
  const float* masses = spread.empty() ? nullptr : spread.data();
  std::copy_n(law, vocab_size, out);
  for (int64_t chunk = 0; chunk < num_chunks(vocab_size); ++chunk) {
    const int n = chunk_size(vocab_size, chunk);
    redistribute_chunk(kernel, static_cast<float>(leaked), sources.chunk(masses, chunk, n), chunk,
                       n, out + chunk * kChunk);
  }
}

// All rows: coefficients, and weights in place of the results, then their share of each row.
void low_rank_laws(const RdkRedistribute& call, const Parallel& parallel) {
  const RdkFactors& low_rank = call.kernel.low_rank;
  const int64_t vocab_size = call.vocab_size, width = low_rank.row_width();
  std::vector<float> coefficients(call.num_rows * width);
  std::vector<float*> rows, weights;
  for (int64_t row = 0; row < call.num_rows; ++row) {
    rows.push_back(&coefficients[row * width]);
    weights.push_back(call.probs + row * vocab_size);
  }
  const auto law_of = [&](int64_t row) { return call.draft_probs + row * call.row_stride; };
  const auto chunk_law = [&](int64_t row, int64_t chunk, int n, float* out) {
    std::copy_n(law_of(row) + chunk * kChunk, n, out);
  };
  low_rank_rows(low_rank, vocab_size, call.num_rows, chunk_law, parallel, rows.data(), nullptr,
                weights.data());
  parallel_for(parallel, call.num_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (sum_of(law_of(row), nullptr, vocab_size) == 0.0) {  // no law stays none
        std::fill_n(weights[row], vocab_size, 0.0f);
        continue;
      }
      for (int64_t chunk = 0; chunk < num_chunks(vocab_size); ++chunk) {
        const int64_t first = chunk * kChunk;
        const MixTerms terms{low_rank.lam / rows[row][low_rank.num_factors], nullptr,
                             1.0f - low_rank.lam, law_of(row) + first, nullptr};
        row_kernels().mix(weights[row] + first, chunk_size(vocab_size, chunk), terms);
      }
    }
  });
}

}  // namespace

void rdk_redistribute_cpu(const RdkRedistribute& call, const Parallel& parallel) {
  if (call.kernel.is_low_rank()) return low_rank_laws(call, parallel);
  const SpreadSources sources(call.kernel, nullptr);
  parallel_for(parallel, call.num_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* law = call.draft_probs + row * call.row_stride;
      mix_row(call, sources, law, call.probs + row * call.vocab_size);
    }
  });
}

}  // namespace hetero_spec
