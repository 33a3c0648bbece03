// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

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

// Coefficients U^T law, then the clamped weights of every id, then their share of the row.
void low_rank_row(const RdkRedistribute& call, const float* law, float* out) {
  const RdkFactors& low_rank = call.low_rank;
  const int64_t vocab_size = call.vocab_size, n = low_rank.num_factors;
  std::vector<double> coefficients(static_cast<size_t>(n), 0.0);
  std::vector<float> part(static_cast<size_t>(n));
  bool has_mass = false;
  for (int64_t chunk = 0; chunk < num_chunks(vocab_size); ++chunk) {
    std::fill(part.begin(), part.end(), 0.0f);
    const int64_t first = chunk * kChunk;
    for (int64_t id = first; id < first + chunk_size(vocab_size, chunk); ++id) {
      if (law[id] == 0.0f) continue;
      has_mass = true;
      const float* row = low_rank.factors + id * n;
      for (int64_t k = 0; k < n; ++k) part[k] += law[id] * row[k];
    }
    for (int64_t k = 0; k < n; ++k) coefficients[k] += part[k];
  }
  if (!has_mass) {
    std::fill_n(out, vocab_size, 0.0f);
    return;
  }
  for (int64_t k = 0; k < n; ++k) part[k] = static_cast<float>(coefficients[k]);
  for (int64_t id = 0; id < vocab_size; ++id) {
    const float weight =
        1.0f + low_rank.scale *
                   row_kernels().dot(low_rank.factors + id * n, part.data(), static_cast<int>(n));
    out[id] = weight < 0.0f ? 0.0f : weight;  // NaN is kept
  }
  const double total = sum_of(out, nullptr, vocab_size);
  const float share = static_cast<float>(low_rank.lam / total), keep = 1.0f - low_rank.lam;
  for (int64_t id = 0; id < vocab_size; ++id) out[id] = keep * law[id] + share * out[id];
}

}  // namespace

void rdk_redistribute_cpu(const RdkRedistribute& call, const Parallel& parallel) {
  const SpreadSources sources(call.kernel, nullptr);
  parallel_for(parallel, call.num_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* law = call.draft_probs + row * call.row_stride;
      float* out = call.probs + row * call.vocab_size;
      if (call.low_rank.factors) {
        low_rank_row(call, law, out);
      } else {
        mix_row(call, sources, law, out);
      }
    }
  });
}

}  // namespace hetero_spec
