// SPDX-License-Identifier: Apache-2.0
// What this machine needs to read logits once and reduce them: the maximum and the sum of
// exponentials of every chunk of 4096 ids, the second sweep over a chunk finding it in the
// first-level cache. Nothing is checked and no tail is handled with care: this is the yardstick,
// not an op. Compiled by perf/limit.py for the machine it runs on.
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

constexpr int64_t kChunk = 4096;

struct LibraryExp {  // the C library's vector expf
  static float of(float x) { return expf(x); }
};

// 2^n * 2^f with a polynomial of degree 5 for 2^f: less exact than the ops need (2e-7), and the
// fastest that was tried.
struct PolynomialExp {
  static float of(float x) {
    float t = x * 1.44269504f;
    t = t < -126.0f ? -126.0f : t;
    const float n = __builtin_floorf(t), f = t - n;
    float poly = 1.8775767e-3f;
    poly = poly * f + 8.9893397e-3f;
    poly = poly * f + 5.5826318e-2f;
    poly = poly * f + 2.4015361e-1f;
    poly = poly * f + 6.9315308e-1f;
    poly = poly * f + 9.9999994e-1f;
    const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof(power));
    return poly * power;
  }
};

float widen(float x) { return x; }

float widen(uint16_t bfloat16) {
  const uint32_t bits = static_cast<uint32_t>(bfloat16) << 16;
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

template <class Exp, class T>
void limit(const T* logits, int64_t rows, int64_t vocab_size, int threads, float* maxima,
           float* sums) {
  const int64_t chunks = (vocab_size + kChunk - 1) / kChunk;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t task = 0; task < rows * chunks; ++task) {
    const int64_t begin = task % chunks * kChunk;
    const int64_t n = vocab_size - begin < kChunk ? vocab_size - begin : kChunk;
    const T* x = logits + task / chunks * vocab_size + begin;
    float max = -FLT_MAX;
    for (int64_t i = 0; i < n; ++i) max = widen(x[i]) > max ? widen(x[i]) : max;
    float sum = 0.0f;
    for (int64_t i = 0; i < n; ++i) sum += Exp::of(widen(x[i]) - max);
    maxima[task] = max;
    sums[task] = sum;
  }
}

}  // namespace

extern "C" {

void limit_library_float32(const void* x, int64_t rows, int64_t vocab_size, int threads,
                           float* maxima, float* sums) {
  limit<LibraryExp>(static_cast<const float*>(x), rows, vocab_size, threads, maxima, sums);
}
void limit_library_bfloat16(const void* x, int64_t rows, int64_t vocab_size, int threads,
                            float* maxima, float* sums) {
  limit<LibraryExp>(static_cast<const uint16_t*>(x), rows, vocab_size, threads, maxima, sums);
}
void limit_polynomial_float32(const void* x, int64_t rows, int64_t vocab_size, int threads,
                              float* maxima, float* sums) {
  limit<PolynomialExp>(static_cast<const float*>(x), rows, vocab_size, threads, maxima, sums);
}
void limit_polynomial_bfloat16(const void* x, int64_t rows, int64_t vocab_size, int threads,
                               float* maxima, float* sums) {
  limit<PolynomialExp>(static_cast<const uint16_t*>(x), rows, vocab_size, threads, maxima, sums);
}

}  // extern "C"
