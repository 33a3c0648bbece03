// SPDX-License-Identifier: Apache-2.0
#include "common/cpu/low_rank_cpu.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/cpu/row_kernels.h"
#include "common/cpu/row_law_cpu.h"

namespace hetero_spec {
namespace {

// Rows that share a read of the factors: what they hold for each chunk, n floats, is V * n / 256
// together.
constexpr int64_t kGroup = 16;

float* law_buffer() {
  thread_local std::vector<float> buffer(kChunk);
  return buffer.data();
}

int chunk_size(int64_t vocab_size, int64_t chunk) {
  return static_cast<int>(std::min<int64_t>(kChunk, vocab_size - chunk * kChunk));
}

}  // namespace

float low_rank_weights(const RdkFactors& factors, const float* coefficients, int64_t first, int n,
                       float* out) {
  return row_kernels().low_rank_weights(factors.factors + first * factors.num_factors,
                                        static_cast<int>(factors.num_factors), coefficients,
                                        factors.scale, n, out);
}

void low_rank_rows(const RdkFactors& factors, int64_t vocab_size, int64_t num_rows,
                   const ChunkLaw& law, const Parallel& parallel, float* const* coefficients,
                   double* masses, float* const* weights) {
  const int64_t width = factors.num_factors, chunks = num_chunks(vocab_size);
  const int64_t group = std::min(kGroup, num_rows);
  std::vector<float> parts(group * chunks * width);
  std::vector<double> own_masses(masses ? 0 : group * chunks);
  for (int64_t first = 0; first < num_rows; first += group) {
    const int64_t rows = std::min(group, num_rows - first);
    double* group_masses = masses ? masses + first * chunks : own_masses.data();
    std::fill(parts.begin(), parts.end(), 0.0f);
    parallel_for(parallel, chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const int n = chunk_size(vocab_size, chunk);
        for (int64_t row = 0; row < rows; ++row) {
          law(first + row, chunk, n, law_buffer());
          row_kernels().add_weighted_rows(factors.factors + chunk * kChunk * width,
                                          static_cast<int>(width), law_buffer(), n,
                                          &parts[(row * chunks + chunk) * width]);
        }
      }
    });
    std::vector<double> sums(width);
    for (int64_t row = 0; row < rows; ++row) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        const float* part = &parts[(row * chunks + chunk) * width];
        for (int64_t k = 0; k < width; ++k) sums[k] += part[k];
      }
      std::copy(sums.begin(), sums.end(), coefficients[first + row]);
    }
    parallel_for(parallel, chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const int n = chunk_size(vocab_size, chunk);
        for (int64_t row = 0; row < rows; ++row) {
          float* out = weights ? weights[first + row] + chunk * kChunk : law_buffer();
          group_masses[row * chunks + chunk] =
              low_rank_weights(factors, coefficients[first + row], chunk * kChunk, n, out);
        }
      }
    });
    for (int64_t row = 0; row < rows; ++row) {
      double total = 0.0;
      for (int64_t chunk = 0; chunk < chunks; ++chunk) total += group_masses[row * chunks + chunk];
      coefficients[first + row][width] = static_cast<float>(total);
    }
  }
}

int64_t draw_low_rank(const RdkFactors& factors, const float* coefficients, const double* masses,
                      int64_t vocab_size, double uniform) {
  const int64_t chunks = num_chunks(vocab_size);
  double total = 0.0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) total += masses[chunk];
  if (!(total > 0.0) || !std::isfinite(total)) return -1;
  const double goal = uniform * total;
  double passed = 0.0;
  const int64_t chosen = pick_chunk(masses, chunks, goal, &passed);
  if (chosen < 0) return -1;
  const int n = chunk_size(vocab_size, chosen);
  float* weights = law_buffer();
  low_rank_weights(factors, coefficients, chosen * kChunk, n, weights);
  const int within = pick_in_chunk(weights, n, goal - passed);
  return within < 0 ? -1 : chosen * kChunk + within;
}

}  // namespace hetero_spec
