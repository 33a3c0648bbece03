// SPDX-License-Identifier: Apache-2.0
// Row laws on the device: from logits to RowStats. Shared by all ops.
//
// Work is split as on the CPU: a chunk of kChunk ids is summed by one warp in float32, the chunks
// of a row are combined in float64 by the block that finishes the row. Neither depends on the grid,
// so a row gives the same bits wherever it lands.
#pragma once

#include "common/device_logits.cuh"
#include "common/draw.cuh"
#include "common/gpu.cuh"
#include "common/reduce.cuh"
#include "common/row_law.h"
#include "common/sampling_params.h"
#include "common/vector_load.cuh"

namespace hetero_spec {

constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;
constexpr float kLargestFloat = 3.402823466e38f;

// (max, sum of 2^y, sum of 2^y * y) with y = (logit - max) * scale, over some ids of a row.
struct LawSum {
  float max_logit;
  float sum;
  float weighted;
};

// The factor from logits to exponents of two. A greedy row (infinite 1/T) needs its maximum only,
// and its NaNs found: any finite scale serves. Clamped, since 0 * inf is NaN.
__device__ __forceinline__ float exponent_scale(float inv_temperature) {
  if (inv_temperature == INFINITY) return kLog2E;
  return fminf(inv_temperature * kLog2E, kLargestFloat);
}

// What a sum over a maximum of -inf is relative to; any number will do, and -inf would give NaN.
__device__ __forceinline__ float finite_max(float max_logit) {
  return max_logit == neg_inf() ? 0.0f : max_logit;
}

// The sum with another maximum.
template <bool kWeighted>
__device__ __forceinline__ LawSum rebased(LawSum sum, float max_logit, float scale) {
  const float shift = (sum.max_logit - finite_max(max_logit)) * scale;
  const float factor = gpu::exp2_approx(shift);
  LawSum out{max_logit, sum.sum * factor, 0.0f};
  if (kWeighted && factor > 0.0f) out.weighted = factor * (sum.weighted + shift * sum.sum);
  return out;
}

template <bool kWeighted>
__device__ __forceinline__ LawSum merged(LawSum a, LawSum b, float scale) {
  const float max_logit = fmaxf(a.max_logit, b.max_logit);
  a = rebased<kWeighted>(a, max_logit, scale);
  b = rebased<kWeighted>(b, max_logit, scale);
  return {max_logit, a.sum + b.sum, a.weighted + b.weighted};
}

// The sum over one chunk, by one warp; all lanes get it. Logits below `cutoff` do not count. NaN
// and +inf make the sum NaN.
template <bool kWeighted, class T>
__device__ __forceinline__ LawSum sum_chunk(const RowView<T>& row, int64_t chunk, int lane,
                                            float scale, float cutoff) {
  constexpr int kSteps = kBatchSteps<T>, kStep = kWarpLanes * kPack<T>;
  static_assert(kChunk % (kSteps * kStep) == 0, "a chunk is a whole number of batches");
  const int64_t begin = chunk * kChunk;
  const int64_t end = begin + kChunk < row.size ? begin + kChunk : row.size;
  LawSum sum{neg_inf(), 0.0f, 0.0f};
  for (int64_t first = begin; first < end; first += kSteps * kStep) {
    float logit[kSteps][kPack<T>];
    load_steps(row, first, lane, logit);
    float largest = sum.max_logit;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kPack<T>; ++n) {
        if (logit[step][n] < cutoff) logit[step][n] = neg_inf();  // NaN stays
        largest = fmaxf(largest, logit[step][n]);
      }
    }
    sum = rebased<kWeighted>(sum, largest, scale);
    const float base = finite_max(largest);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kPack<T>; ++n) {
        const float exponent = (logit[step][n] - base) * scale;
        const float weight = gpu::exp2_approx(exponent);
        sum.sum += weight;
        if (kWeighted && weight > 0.0f) sum.weighted += weight * exponent;
      }
    }
  }
#pragma unroll
  for (int distance = kWarpLanes / 2; distance > 0; distance /= 2) {
    const LawSum other{__shfl_xor_sync(kAllLanes, sum.max_logit, distance),
                       __shfl_xor_sync(kAllLanes, sum.sum, distance),
                       kWeighted ? __shfl_xor_sync(kAllLanes, sum.weighted, distance) : 0.0f};
    sum = merged<kWeighted>(sum, other, scale);
  }
  return sum;
}

// A law made ready for a loop over many ids: law_prob but for the last bits, with one
// special-function instruction. An invalid law gives NaN, an empty one 0.
class LawLoop {
 public:
  __device__ explicit LawLoop(const RowStats& stats)
      : max_logit_(stats.max_logit),
        scale_(exponent_scale(stats.inv_temperature)),
        normalizer_(stats.log_normalizer * kLog2E),
        cutoff_(stats.cutoff),
        greedy_id_(is_greedy(stats) ? static_cast<int>(greedy_id(stats)) : kNoId) {}

  __device__ __forceinline__ float prob(float logit, int id) const {
    if (greedy_id_ != kNoId) return id == greedy_id_ ? 1.0f : 0.0f;
    const float prob = gpu::exp2_approx((logit - max_logit_) * scale_ - normalizer_);
    return logit < cutoff_ ? 0.0f : prob;
  }

 private:
  float max_logit_, scale_, normalizer_, cutoff_;
  int greedy_id_;
};

// ---- a row from its chunks -------------------------------------------------------------------

struct RowSum {
  float max_logit;
  int best_chunk;  // the first that holds max_logit
  bool is_invalid;
  double total;     // of exp((logit - max) * inv_temperature)
  double weighted;  // of exp(y) * y
};

// Combines the chunks of a row, by one warp; all lanes get the result. `weighted` may be null.
__device__ __forceinline__ RowSum combine_chunks(const ChunkSum* sums, const float* weighted,
                                                 int chunks, float inv_temperature, int lane) {
  RowSum out{neg_inf(), 0x7fffffff, false, 0.0, 0.0};
  for (int chunk = lane; chunk < chunks; chunk += kWarpLanes) {
    const ChunkSum sum = sums[chunk];
    out.is_invalid |= sum.sum != sum.sum || sum.max_logit == INFINITY;
    if (sum.max_logit > out.max_logit) {
      out.max_logit = sum.max_logit;
      out.best_chunk = chunk;
    }
  }
  out.is_invalid = __any_sync(kAllLanes, out.is_invalid) != 0;
  const float max_logit = warp_max(out.max_logit);
  out.best_chunk = warp_min(out.max_logit == max_logit ? out.best_chunk : 0x7fffffff);
  out.max_logit = max_logit;
  if (out.is_invalid || max_logit == neg_inf() || inv_temperature == INFINITY) return out;
  const double scale = inv_temperature;
  for (int chunk = lane; chunk < chunks; chunk += kWarpLanes) {
    const ChunkSum sum = sums[chunk];
    if (!(sum.sum > 0.0f)) continue;
    const double shift = (static_cast<double>(sum.max_logit) - max_logit) * scale;
    const double factor = exp(shift);
    out.total += sum.sum * factor;
    if (weighted != nullptr && factor > 0.0) {
      out.weighted += factor * (weighted[chunk] + shift * sum.sum);
    }
  }
  out.total = warp_sum(out.total);
  out.weighted = warp_sum(out.weighted);
  return out;
}

// Lowest id of the chunk whose logit is `value`, by one warp; kNoId if there is none.
template <class T>
__device__ __forceinline__ int lowest_id_with(const RowView<T>& row, int64_t chunk, float value,
                                              int lane) {
  constexpr int kSteps = kBatchSteps<T>, kStep = kWarpLanes * kPack<T>;
  const int64_t begin = chunk * kChunk;
  int lowest = kNoId;
  for (int64_t first = begin; first < begin + kChunk && first < row.size; first += kSteps * kStep) {
    float logit[kSteps][kPack<T>];
    load_steps(row, first, lane, logit);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kPack<T>; ++n) {
        const int id = static_cast<int>(first) + step * kStep + lane * kPack<T> + n;
        if (logit[step][n] == value && id < lowest) lowest = id;
      }
    }
  }
  return warp_min(lowest);
}

// ---- truncation: the cutoff by selection
// -----------------------------------------------------------

constexpr int kBins = 1024;      // of a histogram of logits
constexpr int kGathered = 2048;  // logits that are looked at in shared memory
constexpr float kTopKWidth =
    24.0f;  // logits below the maximum among which the k-th is looked for first

// Masses are integers in units of 2^-39: sums of them are the same in any order of the atomics, and
// kMaxVocabSize of the largest fit.
constexpr float kMassUnit = 549755813888.0f;
using Mass = unsigned long long;

// Floats as unsigned integers in the same order; -0 and +0 are one key, since they are one value.
__device__ __forceinline__ unsigned ordered_key(float value) {
  const unsigned bits = __float_as_uint(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float value_of_key(unsigned key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

// Enough of the largest logits: a number of them (top-k), or a mass (top-p).
struct Goal {
  unsigned count;
  Mass mass;
  __device__ __forceinline__ bool reached(unsigned count_so_far, Mass mass_so_far) const {
    return count_so_far >= count || mass_so_far >= mass;
  }
};

struct Found {
  float cutoff;  // -inf: the goal lies below the bound
  Mass mass;     // of the logits >= cutoff
};

struct SelectionScratch {
  unsigned count[kBins];
  Mass mass[kBins];
  float gathered[kGathered];
  uint16_t gathered_chunk[kGathered];
  unsigned warp_count[kBlockWarps];
  Mass warp_mass[kBlockWarps];
  unsigned num_gathered, low_key, high_key;
  unsigned bin, above_count;
  Mass above_mass;
};

// Finds cutoffs of one row; every method is called by the whole block. The sums of the row's
// chunks, and with kWeighted their weighted sums, become those of the logits >= the cutoff found
// last: a draw from a truncated law then reads one chunk, as any other.
template <bool kWeighted, class T>
class Selection {
 public:
  __device__ Selection(const RowView<T>& row, ChunkSum* sums, float* weighted, float max_logit,
                       float scale)
      : row_(row), sums_(sums), weighted_(weighted), max_logit_(max_logit), scale_(scale) {}

  // The largest value v >= bound such that the logits >= v reach the goal. Reads the row twice
  // where the logits of one bin fit into shared memory, which takes many equal or nearly equal
  // logits to prevent; then once more for each ten bits of the key, and once for the sums. Chunks
  // whose maximum is below the bound are not read.
  __device__ Found find(float bound, float width, Goal goal) {
    SelectionScratch& scratch = gpu::shared<SelectionScratch>();
    const float bin_scale = static_cast<float>(kBins) / fminf(max_logit_ - bound, width);
    const auto linear_bin = [&](float logit) {
      const float bin = (max_logit_ - logit) * bin_scale;
      return bin < static_cast<float>(kBins - 1) ? static_cast<unsigned>(bin)
                                                 : static_cast<unsigned>(kBins - 1);
    };
    clear_bins(scratch);
    visit(bound, [&](float logit) { add_to_bin(scratch, linear_bin(logit), logit); });
    if (!find_bin(scratch, goal, 0, 0)) return {neg_inf(), 0};
    const unsigned bin = scratch.bin;
    unsigned above_count = scratch.above_count;
    Mass above_mass = scratch.above_mass;

    // What lies above the bin is kept wherever in it the cutoff is, and summed at once; what lies
    // in it is gathered.
    LawSum above{};
    visit_chunks(
        bound, [&](int chunk) { above = {sums_[chunk].max_logit, 0.0f, 0.0f}; },
        [&](float logit, int chunk) {
          const unsigned logit_bin = linear_bin(logit);
          if (logit_bin > bin) return;
          if (logit_bin < bin) {
            const float exponent = (logit - above.max_logit) * scale_;
            const float weight = gpu::exp2_approx(exponent);
            above.sum += weight;
            if (kWeighted && weight > 0.0f) above.weighted += weight * exponent;
            return;
          }
          const unsigned slot = atomicAdd(&scratch.num_gathered, 1u);
          if (slot < kGathered) {
            scratch.gathered[slot] = logit;
            scratch.gathered_chunk[slot] = static_cast<uint16_t>(chunk);
          }
          const unsigned key = ordered_key(logit);
          atomicMin(&scratch.low_key, key);
          atomicMax(&scratch.high_key, key);
        },
        [&](int chunk) {
          above.sum = warp_sum(above.sum);
          if (kWeighted) above.weighted = warp_sum(above.weighted);
          set_sum(chunk, above);
        });
    __syncthreads();  // all are gathered
    const unsigned num_gathered = scratch.num_gathered;
    unsigned low = scratch.low_key, high = scratch.high_key;
    while (true) {  // at most four rounds: each leaves one bin of kBins
      int shift = 0;
      while ((high - low) >> shift >= kBins) ++shift;
      clear_bins(scratch);
      const auto add = [&](float logit) {
        const unsigned key = ordered_key(logit);
        if (key >= low && key <= high) add_to_bin(scratch, (high - key) >> shift, logit);
      };
      if (num_gathered <= kGathered) {
        for (unsigned at = threadIdx.x; at < num_gathered; at += kBlockThreads) {
          add(scratch.gathered[at]);
        }
      } else {
        visit(value_of_key(low), add);
      }
      if (!find_bin(scratch, goal, above_count, above_mass)) return {neg_inf(), 0};
      above_count = scratch.above_count;
      above_mass = scratch.above_mass;
      const unsigned chosen = scratch.bin;
      if (shift == 0) {
        const Found found{value_of_key(high - chosen), above_mass + scratch.mass[chosen]};
        if (num_gathered <= kGathered) {
          add_gathered(scratch, num_gathered, found.cutoff);
        } else {
          keep_at_least(found.cutoff);
        }
        return found;
      }
      high -= chosen << shift;
      const unsigned width_of_bin = (1u << shift) - 1;
      if (high - low > width_of_bin) low = high - width_of_bin;
    }
  }

  // Leaves the sums of the logits >= cutoff; reads the chunks that have one.
  __device__ void keep_at_least(float cutoff) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
    const int chunks = static_cast<int>(num_chunks(row_.size));
    for (int chunk = static_cast<int>(threadIdx.x) / kWarpLanes; chunk < chunks;
         chunk += kBlockWarps) {
      LawSum sum{};
      if (sums_[chunk].max_logit >= cutoff) {
        sum = sum_chunk<kWeighted>(row_, chunk, lane, scale_, cutoff);
      }
      set_sum(chunk, sum);
    }
    __syncthreads();  // sums of all chunks are there
  }

 private:
  __device__ __forceinline__ Mass mass_of(float logit) const {
    return static_cast<Mass>(gpu::exp2_approx((logit - max_logit_) * scale_) * kMassUnit);
  }

  // A chunk's sums over its own maximum, which stays; by the chunk's warp.
  __device__ __forceinline__ void set_sum(int chunk, const LawSum& sum) const {
    if (threadIdx.x % kWarpLanes != 0) return;
    sums_[chunk].sum = sum.sum;
    if (kWeighted) weighted_[chunk] = sum.weighted * kLn2;
  }

  // Adds what was gathered and is kept to the sums of its chunks. In integers, as masses are: the
  // order of the atomics does not matter.
  __device__ void add_gathered(SelectionScratch& scratch, unsigned num_gathered,
                               float cutoff) const {
    const int chunks = static_cast<int>(num_chunks(row_.size));
    for (int first = 0; first < chunks; first += kBins) {
      for (int pass = 0; pass < (kWeighted ? 2 : 1); ++pass) {  // sums, then weighted sums
        clear_bins(scratch);
        for (unsigned at = threadIdx.x; at < num_gathered; at += kBlockThreads) {
          const float logit = scratch.gathered[at];
          const int chunk = scratch.gathered_chunk[at];
          if (logit < cutoff || chunk < first || chunk >= first + kBins) continue;
          const float exponent = (logit - sums_[chunk].max_logit) * scale_;
          float weight = gpu::exp2_approx(exponent);
          if (pass != 0) weight = weight > 0.0f ? -exponent * weight : 0.0f;
          atomicAdd(&scratch.mass[chunk - first], static_cast<Mass>(weight * kMassUnit));
        }
        __syncthreads();  // all are added
        for (int chunk = first + static_cast<int>(threadIdx.x);
             chunk < chunks && chunk < first + kBins; chunk += kBlockThreads) {
          const float added = static_cast<float>(scratch.mass[chunk - first]) / kMassUnit;
          if (pass == 0) {
            sums_[chunk].sum += added;
          } else {
            weighted_[chunk] -= added * kLn2;
          }
        }
      }
    }
    __syncthreads();  // sums of all chunks are there
  }

  // Calls body(logit) for the logits >= bound, each once.
  template <class Body>
  __device__ __forceinline__ void visit(float bound, Body body) const {
    visit_chunks(bound, [](int) {}, [&](float logit, int) { body(logit); }, [](int) {});
  }

  // The same between begin(chunk) and end(chunk), which are called for chunks without any, too. A
  // warp has a chunk to itself.
  template <class Begin, class Body, class End>
  __device__ __forceinline__ void visit_chunks(float bound, Begin begin_chunk, Body body,
                                               End end_chunk) const {
    constexpr int kSteps = kBatchSteps<T>, kStep = kWarpLanes * kPack<T>;
    const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
    const int chunks = static_cast<int>(num_chunks(row_.size));
    for (int chunk = static_cast<int>(threadIdx.x) / kWarpLanes; chunk < chunks;
         chunk += kBlockWarps) {
      begin_chunk(chunk);
      const int64_t begin = static_cast<int64_t>(chunk) * kChunk;
      const int64_t end = sums_[chunk].max_logit < bound ? begin : begin + kChunk;
      for (int64_t first = begin; first < end && first < row_.size; first += kSteps * kStep) {
        float logit[kSteps][kPack<T>];
        load_steps(row_, first, lane, logit);
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
#pragma unroll
          for (int n = 0; n < kPack<T>; ++n) {
            if (logit[step][n] >= bound) body(logit[step][n], chunk);
          }
        }
      }
      end_chunk(chunk);
    }
  }

  __device__ __forceinline__ void clear_bins(SelectionScratch& scratch) const {
    __syncthreads();  // nobody reads the last histogram any more
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kBlockThreads) {
      scratch.count[bin] = 0;
      scratch.mass[bin] = 0;
    }
    __syncthreads();
  }

  __device__ __forceinline__ void add_to_bin(SelectionScratch& scratch, unsigned bin,
                                             float logit) const {
    atomicAdd(&scratch.count[bin], 1u);
    atomicAdd(&scratch.mass[bin], mass_of(logit));
  }

  // The first bin at which the goal is reached, and what lies above it, into scratch; false if
  // none. Also readies the scratch for a gathering.
  __device__ bool find_bin(SelectionScratch& scratch, Goal goal, unsigned above_count,
                           Mass above_mass) const {
    constexpr int kEach = kBins / kBlockThreads;
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % kWarpLanes, warp = thread / kWarpLanes;
    __syncthreads();  // the histogram is complete
    unsigned count = 0;
    Mass mass = 0;
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      count += scratch.count[thread * kEach + n];
      mass += scratch.mass[thread * kEach + n];
    }
    const unsigned count_to_here = warp_inclusive_sum(count, lane);
    const Mass mass_to_here = warp_inclusive_sum(mass, lane);
    if (lane == kWarpLanes - 1) {
      scratch.warp_count[warp] = count_to_here;
      scratch.warp_mass[warp] = mass_to_here;
    }
    if (thread == 0) {
      scratch.bin = kBins;
      scratch.num_gathered = 0;
      scratch.low_key = 0xffffffffu;
      scratch.high_key = 0;
    }
    __syncthreads();  // sums of the warps are there
    for (int before = 0; before < warp; ++before) {
      above_count += scratch.warp_count[before];
      above_mass += scratch.warp_mass[before];
    }
    above_count += count_to_here - count;
    above_mass += mass_to_here - mass;
    const bool before = goal.reached(above_count, above_mass);
    if (!before && goal.reached(above_count + count, above_mass + mass)) {  // one thread at most
      int bin = thread * kEach;
      while (!goal.reached(above_count + scratch.count[bin], above_mass + scratch.mass[bin])) {
        above_count += scratch.count[bin];
        above_mass += scratch.mass[bin];
        ++bin;
      }
      scratch.bin = static_cast<unsigned>(bin);
      scratch.above_count = above_count;
      scratch.above_mass = above_mass;
    }
    __syncthreads();  // the bin is known
    return scratch.bin != kBins;
  }

  const RowView<T>& row_;
  ChunkSum* sums_;
  float* weighted_;  // or null
  float max_logit_;
  float scale_;
};

__device__ __forceinline__ bool is_truncating(const RequestParams& params, int64_t num_ids) {
  return (params.top_k > 0 && params.top_k < num_ids) || params.top_p < 1.0f || params.min_p > 0.0f;
}

// The cutoff, the strictest of top-k, top-p on what top-k left, and min-p; -inf: none. The sums of
// the chunks become those of what it leaves. The row is finite and not greedy; called by the whole
// block, every thread gets the result.
template <bool kWeighted, class T>
__device__ float truncate_row(const RowView<T>& row, const RequestParams& params, ChunkSum* sums,
                              float* weighted, const RowSum& sum, int64_t num_ids) {
  constexpr Mass kNever = ~Mass{0};
  const bool top_k = params.top_k > 0 && params.top_k < num_ids, top_p = params.top_p < 1.0f;
  const float max_logit = sum.max_logit;
  const float min_p = min_p_cutoff(max_logit, params.inv_temperature, params.min_p);
  Selection<kWeighted, T> selection(row, sums, weighted, max_logit,
                                    exponent_scale(params.inv_temperature));
  Found strictest{neg_inf(), 0};
  Mass reference = static_cast<Mass>(sum.total * kMassUnit);
  if (top_k) {
    // min-p may raise the bound, unless top-p needs the mass of all that top-k kept.
    const float bound = fminf(top_p ? -kLargestFloat : fmaxf(min_p, -kLargestFloat), max_logit);
    strictest = selection.find(bound, kTopKWidth, {static_cast<unsigned>(params.top_k), kNever});
    if (strictest.cutoff > neg_inf()) reference = strictest.mass;
  }
  if (top_p) {
    const double share = params.top_p;
    // Even as many logits at the bound as there are ids hold less than the mass that may be left
    // out; 0.999 covers the rounding of the sums.
    const double slack = (1.0 - share) * sum.total * 0.999;
    float bound = -kLargestFloat;
    if (slack > 0.0) {
      const double below = log(slack / static_cast<double>(row.size)) / params.inv_temperature;
      bound = fmaxf(bound, static_cast<float>(max_logit + below));
    }
    bound = fminf(fmaxf(bound, fmaxf(strictest.cutoff, min_p)), max_logit);
    const double goal = share * static_cast<double>(reference);
    // At least one unit: a goal of nothing would be reached before the first logit.
    const Mass units = goal > 1.0 ? static_cast<Mass>(goal) : 1;
    const Found found = selection.find(bound, INFINITY, {0xffffffffu, units});
    if (found.cutoff > strictest.cutoff) strictest = found;
  }
  if (strictest.cutoff > min_p || min_p == neg_inf()) return strictest.cutoff;
  const float cutoff = fminf(min_p, max_logit);
  selection.keep_at_least(cutoff);
  return cutoff;
}

// ---- a whole row
// ---------------------------------------------------------------------------------

// The law of a row whose chunk sums are complete; called by the whole block, every thread gets it.
// Where the law is truncated the sums become those of what is left. `weighted` and `sum_out` may be
// null.
template <bool kTruncate, bool kWeighted, class T>
__device__ RowStats finish_row(const RowView<T>& row, const RequestParams& params, ChunkSum* sums,
                               float* weighted, int64_t num_ids, RowSum* sum_out) {
  struct Combined {
    RowSum sum;
    int greedy_id;
  };
  Combined& combined = gpu::shared<Combined>();
  const int thread = static_cast<int>(threadIdx.x);
  const int chunks = static_cast<int>(num_chunks(row.size));
  const float inv_temperature = params.inv_temperature;
  if (thread < kWarpLanes) {
    const RowSum sum = combine_chunks(sums, weighted, chunks, inv_temperature, thread);
    int greedy_id = 0;
    if (inv_temperature == INFINITY && !sum.is_invalid && sum.max_logit > neg_inf()) {
      greedy_id = lowest_id_with(row, sum.best_chunk, sum.max_logit, thread);
    }
    if (thread == 0) combined = {sum, greedy_id};
  }
  __syncthreads();
  RowSum sum = combined.sum;
  const int greedy_id = combined.greedy_id;
  __syncthreads();  // before the next row of this block
  if (sum_out != nullptr) *sum_out = sum;
  if (sum.is_invalid || inv_temperature != inv_temperature) return invalid_stats();
  if (sum.max_logit == neg_inf()) return empty_stats(inv_temperature);
  if (inv_temperature == INFINITY) return greedy_stats(sum.max_logit, greedy_id);
  RowStats stats{sum.max_logit, inv_temperature, 0.0f, neg_inf()};
  if (kTruncate && is_truncating(params, num_ids)) {
    stats.cutoff = truncate_row<kWeighted>(row, params, sums, weighted, sum, num_ids);
    if (thread < kWarpLanes) {
      const RowSum kept = combine_chunks(sums, weighted, chunks, inv_temperature, thread);
      if (thread == 0) combined.sum = kept;
    }
    __syncthreads();
    sum = combined.sum;
    __syncthreads();  // before the next row of this block
    if (sum_out != nullptr) *sum_out = sum;
  }
  stats.log_normalizer = static_cast<float>(log(sum.total));
  return stats;
}

// True in every thread of the block that is the last of `blocks` to come here with this ticket;
// what the others wrote before is then visible to it. Tickets start at 0 and are 0 again
// afterwards.
__device__ __forceinline__ bool is_last_block(unsigned* ticket, unsigned blocks) {
  struct Shared {
    bool is_last;
  };
  Shared& shared = gpu::shared<Shared>();
  __syncthreads();  // what all threads of this block wrote precedes the fence
  if (threadIdx.x == 0) {
    __threadfence();
    shared.is_last = atomicInc(ticket, blocks - 1) == blocks - 1;
    __threadfence();  // in the thread that saw the tickets of the others
  }
  __syncthreads();
  return shared.is_last;
}

// The law of a row, by `groups` blocks of which this is number `group`. Returns true in the one
// that finished it, which has the law; the others leave. `sums` is the row's place in the
// workspace.
template <bool kTruncate, class T>
__device__ __forceinline__ bool row_law(const RowView<T>& row, const RequestParams& params,
                                        int64_t num_ids, unsigned group, unsigned groups,
                                        ChunkSum* sums, unsigned* ticket, RowStats* stats) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpLanes;
  const int chunk = static_cast<int>(group) * kBlockWarps + thread / kWarpLanes;
  if (chunk < static_cast<int>(num_chunks(row.size))) {
    const LawSum sum =
        sum_chunk<false>(row, chunk, lane, exponent_scale(params.inv_temperature), neg_inf());
    if (lane == 0) sums[chunk] = {sum.max_logit, sum.sum};
  }
  if (!is_last_block(ticket, groups)) return false;
  *stats = finish_row<kTruncate, false>(row, params, sums, nullptr, num_ids, nullptr);
  return true;
}

// Mass of a chunk, from the sums that finish_row left.
__device__ __forceinline__ double mass_of_chunk(const RowStats& stats, const ChunkSum& sum) {
  if (!(sum.sum > 0.0f)) return 0.0;
  const double exponent = (static_cast<double>(sum.max_logit) - stats.max_logit) *
                              static_cast<double>(stats.inv_temperature) -
                          static_cast<double>(stats.log_normalizer);
  return sum.sum * exp(exponent);
}

// A matrix of logits on the device, as launchers take it.
template <class T>
__device__ __forceinline__ RowView<T> row_of(const DeviceLogits& logits, int64_t row,
                                             const uint32_t* mask) {
  return {static_cast<const T*>(logits.data) + row * logits.row_stride, logits.vocab_size, mask};
}

// One logit of a matrix whose dtype the kernel was not compiled for.
__device__ __forceinline__ float logit_at(const DeviceLogits& logits, int64_t row, int64_t id) {
  const int64_t at = row * logits.row_stride + id;
  switch (logits.dtype) {
    case DType::kFloat32:
      return static_cast<const float*>(logits.data)[at];
    case DType::kFloat16:
      return to_float(static_cast<const __half*>(logits.data)[at]);
    default:
      return to_float(static_cast<const __nv_bfloat16*>(logits.data)[at]);
  }
}

}  // namespace hetero_spec
