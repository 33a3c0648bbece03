// SPDX-License-Identifier: Apache-2.0
// Low-rank RDK kernels (common/low_rank.h) on the CPU.
#pragma once

#include <cstdint>
#include <functional>

#include "common/cpu/parallel.h"
#include "common/low_rank.h"

namespace hetero_spec {

// Fills out[0, n) with the law of a row at the n target ids of a chunk.
using ChunkLaw = std::function<void(int64_t row, int64_t chunk, int n, float* out)>;

// What is kept of `num_rows` rows: coefficients[row] receives n + 1 floats, masses (or null)
// [num_rows, chunks] the weights' mass in each chunk, weights[row] (or null) all V of them. The
// factors are read twice for a group of rows, threads share the chunks. float32 in a chunk, float64
// across them: a row's bits do not depend on the others.
void low_rank_rows(const RdkFactors& factors, int64_t vocab_size, int64_t num_rows,
                   const ChunkLaw& law, const Parallel& parallel, float* const* coefficients,
                   double* masses, float* const* weights);

// Weights of n target ids from `first` on; returns their sum. An id's weight has the same bits in
// every such call.
float low_rank_weights(const RdkFactors& factors, const float* coefficients, int64_t first, int n,
                       float* out);

// Id by inverse CDF from the weights, whose masses are those of low_rank_rows; -1 if they have none
// that is finite.
int64_t draw_low_rank(const RdkFactors& factors, const float* coefficients, const double* masses,
                      int64_t vocab_size, double uniform);

}  // namespace hetero_spec
