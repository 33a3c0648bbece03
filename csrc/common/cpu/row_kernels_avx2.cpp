// SPDX-License-Identifier: Apache-2.0
// RowKernels for AVX2 with FMA and F16C: 8 floats a vector, masks as vectors of all-ones lanes.
#include <immintrin.h>

#include "common/cpu/row_kernels.h"

namespace hetero_spec {
namespace {

#include "common/cpu/logit_types.inl"

struct Simd {
  using Float = __m256;
  using Mask = __m256;
  static constexpr int kWidth = 8;

  static Float set(float x) { return _mm256_set1_ps(x); }
  static Float load_float(const float* x) { return _mm256_loadu_ps(x); }
  static Float load(const Float32* x) { return _mm256_loadu_ps(&x->value); }
  static Float load(const Float16* x) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
  }
  static Float load(const BFloat16* x) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static void store(float* out, Float x) { _mm256_storeu_ps(out, x); }
  static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float multiply_add(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float negative_multiply_add(Float a, Float b, Float c) {
    return _mm256_fnmadd_ps(a, b, c);
  }
  static Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
  static Float round(Float x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // A product, not an addition to the exponent's bits: NaN must stay NaN.
  static Float scale_by_power_of_two(Float x, Float n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  }
  static Mask less(Float a, Float b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static Mask greater_equal(Float a, Float b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
  static Mask is_nan(Float x) { return _mm256_cmp_ps(x, x, _CMP_UNORD_Q); }
  static bool any(Mask mask) { return _mm256_movemask_ps(mask) != 0; }
  static Float zero_where(Mask mask, Float x) { return _mm256_andnot_ps(mask, x); }
  static Float keep_where_bits(const uint16_t* mask, int at, Float x, float otherwise) {
    const int bits = mask[at / kMaskBits] >> (at % kMaskBits);
    const __m256i lane_bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i kept =
        _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits), lane_bit), lane_bit);
    return _mm256_blendv_ps(set(otherwise), x, _mm256_castsi256_ps(kept));
  }
  static int compress_store(float* out, Mask mask, Float x) {
    float lanes[kWidth];
    store(lanes, x);
    int count = 0;
    for (int bits = _mm256_movemask_ps(mask); bits != 0; bits &= bits - 1) {
      out[count++] = lanes[__builtin_ctz(static_cast<unsigned>(bits))];
    }
    return count;
  }
  static float reduce_add(Float x) {
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 quarter = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_shuffle_ps(quarter, quarter, 1)));
  }
  static float reduce_max(Float x) {
    const __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 quarter = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(quarter, _mm_shuffle_ps(quarter, quarter, 1)));
  }
};

#include "common/cpu/row_kernels.inl"

}  // namespace

extern const RowKernels kRowKernelsAvx2;
const RowKernels kRowKernelsAvx2 = make_table("avx2");

}  // namespace hetero_spec
