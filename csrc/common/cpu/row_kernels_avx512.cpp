// SPDX-License-Identifier: Apache-2.0
// RowKernels for AVX-512 (F, BW, DQ, VL): 16 floats a vector, native masks.
#include <immintrin.h>

#include "common/cpu/row_kernels.h"

namespace hetero_spec {
namespace {

#include "common/cpu/logit_types.inl"

struct Simd {
  using Float = __m512;
  using Mask = __mmask16;
  static constexpr int kWidth = 16;

  static Float set(float x) { return _mm512_set1_ps(x); }
  static Float load_float(const float* x) { return _mm512_loadu_ps(x); }
  static Float load(const Float32* x) { return _mm512_loadu_ps(&x->value); }
  static Float load(const Float16* x) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  }
  static Float load(const BFloat16* x) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static void store(float* out, Float x) { _mm512_storeu_ps(out, x); }
  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float multiply_add(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float negative_multiply_add(Float a, Float b, Float c) {
    return _mm512_fnmadd_ps(a, b, c);
  }
  static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
  static Float round(Float x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static Float scale_by_power_of_two(Float x, Float n) { return _mm512_scalef_ps(x, n); }
  static Mask less(Float a, Float b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static Mask greater_equal(Float a, Float b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
  static Mask is_nan(Float x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q); }
  static bool any(Mask mask) { return mask != 0; }
  static Float zero_where(Mask mask, Float x) {
    return _mm512_maskz_mov_ps(static_cast<Mask>(~mask), x);
  }
  static Float keep_where_bits(const uint16_t* mask, int at, Float x, float otherwise) {
    return _mm512_mask_mov_ps(set(otherwise), mask[at / kMaskBits], x);
  }
  // Compress in a register and store all of it: the compressing store is microcoded on some
  // processors.
  static int compress_store(float* out, Mask mask, Float x) {
    _mm512_storeu_ps(out, _mm512_maskz_compress_ps(mask, x));
    return __builtin_popcount(mask);
  }
  static float reduce_add(Float x) { return _mm512_reduce_add_ps(x); }
  static float reduce_max(Float x) { return _mm512_reduce_max_ps(x); }
};

#include "common/cpu/row_kernels.inl"

}  // namespace

extern const RowKernels kRowKernelsAvx512;
const RowKernels kRowKernelsAvx512 = make_table("avx512");

}  // namespace hetero_spec
