// SPDX-License-Identifier: Apache-2.0
// 1. A bound below which no kept logit can lie: for min-p the cutoff itself; for top-k the k-th
// largest of the
//    maxima of groups of 256 ids (k groups hold at least k logits that large); for top-p the logit
//    under which even the whole vocabulary has less than 1 - top_p of the mass.
// 2. The logits above the bound are gathered (usually tens or hundreds) and the cutoff is selected
// among them.
// 3. If they don't fit the buffer, histograms of their ordered integer keys narrow the range to the
// bin that holds the
//    cutoff, with count and mass above it, until the bin fits or is a single key: 3 rounds of 11
//    bits at the most.
#include "common/cpu/cutoff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace hetero_spec {
namespace {

constexpr int kBufferSize = 49152;  // with the weights 384 KiB a thread: the second-level cache
constexpr int kNumBins = 2048;
constexpr double kNever = std::numeric_limits<double>::infinity();

// Per thread, allocated at the first truncated row.
struct Buffers {
  std::vector<float> logits = std::vector<float>(kBufferSize + kVectorRoom);
  std::vector<float> weights = std::vector<float>(kBufferSize + kVectorRoom);
  std::vector<float> chunk_logits = std::vector<float>(kChunk + kVectorRoom);
  std::vector<float> chunk_weights = std::vector<float>(kChunk + kVectorRoom);
  std::vector<int64_t> bin_counts = std::vector<int64_t>(kNumBins);
  std::vector<double> bin_masses = std::vector<double>(kNumBins);
};

Buffers& buffers() {
  thread_local Buffers instance;
  return instance;
}

// Floats as unsigned integers in the same order; -0 and +0 are one key, since they are one value.
uint32_t ordered_key(float x) {
  const float canonical = x + 0.0f;
  uint32_t bits;
  std::memcpy(&bits, &canonical, sizeof(bits));
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

float value_of_key(uint32_t key) {
  const uint32_t bits = key & 0x80000000u ? key & 0x7FFFFFFFu : ~key;
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// What a search from the largest logit downwards has to reach.
struct Goal {
  int64_t count;  // logits, for top-k
  double mass;    // mass, for top-p
  bool reached(int64_t count_so_far, double mass_so_far) const {
    return count_so_far >= count || mass_so_far >= mass;
  }
};

struct Found {
  float cutoff;  // -inf where the goal lies below the bound
  int64_t count;
  double mass;  // of all logits >= cutoff
};

struct Search {
  const RowKernels& kernels;
  const LogitRow& row;
  const ChunkSum* sums;
  float max_logit;
  float inv_temperature;

  int dtype() const { return static_cast<int>(row.dtype); }

  // All logits >= bound into the buffer; -1 if they don't fit.
  int gather(float bound, std::vector<float>& out) const {
    int count = 0;
    for (int64_t chunk = 0; chunk < num_chunks(row.vocab_size); ++chunk) {
      if (sums[chunk].max_logit < bound) continue;
      const int kept = kernels.filter_at_least[dtype()](row.chunk(chunk), row.chunk_size(chunk),
                                                        row.chunk_mask(chunk), bound,
                                                        out.data() + count, kBufferSize - count);
      if (kept < 0) return -1;
      count += kept;
    }
    return count;
  }

  // Selects among the n logits in the buffer, with `above` already passed: a quickselect whose
  // partitions are vector compressions, so that each round touches only what is left.
  Found select(int n, Goal goal, Found above) const {
    float* logits = buffers().logits.data();
    float* weights = buffers().weights.data();
    for_pieces(n, [&](int begin, int size) {
      kernels.exp_weights(logits + begin, size, max_logit, inv_temperature, weights + begin);
    });
    Found passed = above;
    while (n > 64) {
      float pivot = pivot_of(logits, n);
      int64_t count = 0;
      double mass = 0.0;
      at_least(logits, weights, n, pivot, &count, &mass);
      if (count == n) {  // the pivot is the smallest value left: look above it
        at_least(logits, weights, n, std::nextafter(pivot, INFINITY), &count, &mass);
        if (!goal.reached(passed.count + count, passed.mass + mass)) {
          at_least(logits, weights, n, pivot, &count, &mass);
          passed = {pivot, passed.count + count, passed.mass + mass};
          return goal.reached(passed.count, passed.mass) ? passed : not_found(passed);
        }
        pivot = std::nextafter(pivot, INFINITY);
      }
      const bool above_pivot = goal.reached(passed.count + count, passed.mass + mass);
      if (!above_pivot) {
        passed.count += count;
        passed.mass += mass;
      }
      n = kernels.keep_side(logits, weights, n, pivot, above_pivot);
    }
    std::sort(logits, logits + n, std::greater<float>());
    kernels.exp_weights(logits, n, max_logit, inv_temperature, weights);
    for (int i = 0; i < n;) {
      const float value = logits[i];
      for (; i < n && logits[i] == value; ++i) {
        passed.count += 1;
        passed.mass += weights[i];
      }
      if (goal.reached(passed.count, passed.mass)) return {value, passed.count, passed.mass};
    }
    return not_found(passed);
  }

  // The cutoff among the logits >= bound by histograms of their keys, where they are too many to
  // gather.
  Found narrow(float bound, Goal goal) const {
    Buffers& scratch = buffers();
    Found passed{-INFINITY, 0, 0.0};
    uint32_t low = ordered_key(bound), high = ordered_key(max_logit);
    while (true) {
      int shift = 0;
      while (((high - low) >> shift) >= kNumBins) ++shift;
      std::fill(scratch.bin_counts.begin(), scratch.bin_counts.end(), 0);
      std::fill(scratch.bin_masses.begin(), scratch.bin_masses.end(), 0.0);
      visit(bound, [&](const float* logits, const float* weights, int n) {
        for (int i = 0; i < n; ++i) {
          const uint32_t key = ordered_key(logits[i]);
          if (key < low || key > high) continue;
          scratch.bin_counts[(high - key) >> shift] += 1;
          scratch.bin_masses[(high - key) >> shift] += weights[i];
        }
      });
      uint32_t bin = 0;
      while (bin < kNumBins && !goal.reached(passed.count + scratch.bin_counts[bin],
                                             passed.mass + scratch.bin_masses[bin])) {
        passed.count += scratch.bin_counts[bin];
        passed.mass += scratch.bin_masses[bin];
        ++bin;
      }
      if (bin == kNumBins) return {-INFINITY, passed.count, passed.mass};
      if (shift == 0) {
        return {value_of_key(high - bin), passed.count + scratch.bin_counts[bin],
                passed.mass + scratch.bin_masses[bin]};
      }
      high -= bin << shift;
      const uint32_t width = (uint32_t{1} << shift) - 1;
      low = high - low > width ? high - width : low;
      if (scratch.bin_counts[bin] <= kBufferSize) {
        int count = 0;
        visit(value_of_key(low), [&](const float* logits, const float*, int n) {
          for (int i = 0; i < n; ++i) {
            if (ordered_key(logits[i]) <= high) scratch.logits[count++] = logits[i];
          }
        });
        return select(count, goal, passed);
      }
      bound = value_of_key(low);
    }
  }

  // Calls body(logits, weights, n) for the logits >= bound, chunk by chunk.
  template <class F>
  void visit(float bound, F body) const {
    Buffers& scratch = buffers();
    float* kept = scratch.chunk_logits.data();
    for (int64_t chunk = 0; chunk < num_chunks(row.vocab_size); ++chunk) {
      const int n = kernels.filter_at_least[dtype()](row.chunk(chunk), row.chunk_size(chunk),
                                                     row.chunk_mask(chunk), bound, kept,
                                                     kChunk + kVectorRoom);
      kernels.exp_weights(kept, n, max_logit, inv_temperature, scratch.chunk_weights.data());
      body(kept, scratch.chunk_weights.data(), n);
    }
  }

  Found find(float bound, Goal goal) const {
    Buffers& scratch = buffers();
    const int count = gather(bound, scratch.logits);
    if (count >= 0) return select(count, goal, {-INFINITY, 0, 0.0});
    return narrow(bound, goal);
  }

 private:
  static Found not_found(Found passed) { return {-INFINITY, passed.count, passed.mass}; }

  // Median of nine values spread over the array.
  static float pivot_of(const float* x, int n) {
    float sample[9];
    for (int i = 0; i < 9; ++i) sample[i] = x[static_cast<int64_t>(n - 1) * i / 8];
    std::nth_element(sample, sample + 4, sample + 9);
    return sample[4];
  }

  // Calls body(begin, size) for pieces of at most a chunk: sums stay float32 inside a piece only.
  template <class F>
  static void for_pieces(int n, F body) {
    for (int begin = 0; begin < n; begin += kChunk) body(begin, std::min(kChunk, n - begin));
  }

  void at_least(const float* logits, const float* weights, int n, float pivot, int64_t* count,
                double* mass) const {
    *count = 0;
    *mass = 0.0;
    for_pieces(n, [&](int begin, int size) {
      int piece = 0;
      *mass += kernels.mass_at_least(logits + begin, weights + begin, size, pivot, &piece);
      *count += piece;
    });
  }
};

// A logit that at least k logits reach.
float top_k_bound(const Search& search, int64_t k) {
  const LogitRow& row = search.row;
  std::vector<float> maxima(static_cast<size_t>(num_chunks(row.vocab_size) * kGroupsPerChunk),
                            -INFINITY);
  if (k > static_cast<int64_t>(maxima.size())) return std::numeric_limits<float>::lowest();
  for (int64_t chunk = 0; chunk < num_chunks(row.vocab_size); ++chunk) {
    search.kernels.group_max[search.dtype()](row.chunk(chunk), row.chunk_size(chunk),
                                             row.chunk_mask(chunk),
                                             &maxima[chunk * kGroupsPerChunk]);
  }
  std::nth_element(maxima.begin(), maxima.begin() + (k - 1), maxima.end(), std::greater<float>());
  return std::max(maxima[k - 1], std::numeric_limits<float>::lowest());
}

}  // namespace

float LogitRow::at(int64_t id) const {
  if (dtype == DType::kFloat32) return static_cast<const float*>(logits)[id];
  const uint16_t bits = static_cast<const uint16_t*>(logits)[id];
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  uint32_t wide;
  float value;
  if (dtype == DType::kBFloat16) {
    wide = static_cast<uint32_t>(bits) << 16;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
  const int exponent = (bits >> 10) & 31;
  const uint32_t fraction = bits & 0x3FF;
  if (exponent == 0) return (sign ? -1.0f : 1.0f) * std::ldexp(static_cast<float>(fraction), -24);
  wide = sign | (exponent == 31 ? 0x7F800000u : static_cast<uint32_t>(exponent + 112) << 23) |
         fraction << 13;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

Truncation truncate_row(const LogitRow& row, const RequestParams& params, const ChunkSum* sums,
                        float max_logit, double total_sum, bool want_weighted_sum) {
  const Search search{row_kernels(), row, sums, max_logit, params.inv_temperature};
  const float lowest = std::numeric_limits<float>::lowest();
  const bool top_k = has_top_k(params, row.num_ids), top_p = has_top_p(params);
  const float min_p = min_p_cutoff(max_logit, params.inv_temperature, params.min_p);

  Found strictest{-INFINITY, 0, 0.0};
  double reference_mass = total_sum;
  if (top_k) {
    // min-p may raise the bound, unless top-p needs the mass of all that top-k kept.
    const float bound = std::max(top_k_bound(search, params.top_k), top_p ? lowest : min_p);
    strictest = search.find(bound, {params.top_k, kNever});
    reference_mass = strictest.mass;
  }
  if (top_p) {
    const double target = static_cast<double>(params.top_p) * reference_mass;
    // Even V logits at the bound hold less than the mass that may be left out; 0.999 covers float
    // rounding.
    const double slack = (1.0 - static_cast<double>(params.top_p)) * total_sum * 0.999;
    const double below_max =
        std::log(slack / static_cast<double>(row.vocab_size)) / params.inv_temperature;
    const float bound = slack > 0.0 ? static_cast<float>(max_logit + below_max) : lowest;
    const Found found =
        search.find(std::min(std::max({bound, strictest.cutoff, min_p, lowest}), max_logit),
                    {std::numeric_limits<int64_t>::max(), target});
    if (found.cutoff > strictest.cutoff) strictest = found;
  }
  if (strictest.cutoff > min_p && !want_weighted_sum)
    return {strictest.cutoff, strictest.mass, 0.0};

  Truncation out{std::min(std::max(strictest.cutoff, min_p), max_logit), 0.0, 0.0};
  const double scale = params.inv_temperature;
  search.visit(std::max(out.cutoff, lowest), [&](const float* logits, const float* weights, int n) {
    double sum = 0.0, weighted = 0.0;
    for (int i = 0; i < n; ++i) {
      sum += weights[i];
      weighted += weights[i] * ((static_cast<double>(logits[i]) - max_logit) * scale);
    }
    out.kept_sum += sum;
    out.kept_weighted_sum += weighted;
  });
  return out;
}

}  // namespace hetero_spec
