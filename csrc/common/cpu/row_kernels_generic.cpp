// SPDX-License-Identifier: Apache-2.0
// RowKernels in plain C++ over arrays of 8 floats, which compilers turn into SSE2 or NEON: any
// processor.
#include <cstring>

#include "common/cpu/row_kernels.h"

namespace hetero_spec {
namespace {

#include "common/cpu/logit_types.inl"

inline float float_from_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// IEEE half to float without a branch: the exponent is moved by a multiplication, which also
// normalises subnormal halves (idea: F. Giesen's half_to_float, public domain); infinity and NaN
// get the full exponent.
inline float half_to_float(uint16_t half) {
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7FFF) << 13;
  const float scaled = float_from_bits(magnitude) * float_from_bits((254u - 15u) << 23);
  uint32_t bits;
  std::memcpy(&bits, &scaled, sizeof(bits));
  bits |= magnitude >= (0x7C00u << 13) ? 0x7F800000u : 0u;
  return float_from_bits(bits | static_cast<uint32_t>(half & 0x8000) << 16);
}

struct Simd {
  static constexpr int kWidth = 8;
  struct Float {
    float lane[kWidth];
  };
  struct Mask {
    bool lane[kWidth];
  };

  template <class G>
  static Float each(G make) {
    Float out;
    for (int i = 0; i < kWidth; ++i) out.lane[i] = make(i);
    return out;
  }
  template <class G>
  static Mask each_mask(G make) {
    Mask out;
    for (int i = 0; i < kWidth; ++i) out.lane[i] = make(i);
    return out;
  }
  static Float set(float x) {
    return each([&](int) { return x; });
  }
  static Float load_float(const float* x) {
    return each([&](int i) { return x[i]; });
  }
  static Float load(const Float32* x) {
    return each([&](int i) { return x[i].value; });
  }
  static Float load(const Float16* x) {
    return each([&](int i) { return half_to_float(x[i].bits); });
  }
  static Float load(const BFloat16* x) {
    return each([&](int i) { return float_from_bits(static_cast<uint32_t>(x[i].bits) << 16); });
  }
  static void store(float* out, const Float& x) {
    for (int i = 0; i < kWidth; ++i) out[i] = x.lane[i];
  }
  static Float add(const Float& a, const Float& b) {
    return each([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static Float sub(const Float& a, const Float& b) {
    return each([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static Float mul(const Float& a, const Float& b) {
    return each([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static Float multiply_add(const Float& a, const Float& b, const Float& c) {
    return each([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
  }
  static Float negative_multiply_add(const Float& a, const Float& b, const Float& c) {
    return each([&](int i) { return c.lane[i] - a.lane[i] * b.lane[i]; });
  }
  static Float max(const Float& a, const Float& b) {
    return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer for |x| < 2^22.
  static Float round(const Float& x) {
    return each([&](int i) { return (x.lane[i] + 12582912.0f) - 12582912.0f; });
  }
  static Float scale_by_power_of_two(const Float& x, const Float& n) {
    return each([&](int i) {
      const int exponent = n.lane[i] == n.lane[i] ? static_cast<int>(n.lane[i]) : 0;
      return x.lane[i] * float_from_bits(static_cast<uint32_t>(exponent + 127) << 23);
    });
  }
  static Mask less(const Float& a, const Float& b) {
    return each_mask([&](int i) { return a.lane[i] < b.lane[i]; });
  }
  static Mask greater_equal(const Float& a, const Float& b) {
    return each_mask([&](int i) { return a.lane[i] >= b.lane[i]; });
  }
  static Mask is_nan(const Float& x) {
    return each_mask([&](int i) { return x.lane[i] != x.lane[i]; });
  }
  static bool any(const Mask& mask) {
    bool found = false;
    for (int i = 0; i < kWidth; ++i) found |= mask.lane[i];
    return found;
  }
  static Float zero_where(const Mask& mask, const Float& x) {
    return each([&](int i) { return mask.lane[i] ? 0.0f : x.lane[i]; });
  }
  static Float keep_where_bits(const uint16_t* mask, int at, const Float& x, float otherwise) {
    const int bits = mask[at / kMaskBits] >> (at % kMaskBits);
    return each([&](int i) { return (bits >> i) & 1 ? x.lane[i] : otherwise; });
  }
  static int compress_store(float* out, const Mask& mask, const Float& x) {
    int count = 0;
    for (int i = 0; i < kWidth; ++i) {
      if (mask.lane[i]) out[count++] = x.lane[i];
    }
    return count;
  }
  static float reduce_add(const Float& x) {
    return ((x.lane[0] + x.lane[4]) + (x.lane[2] + x.lane[6])) +
           ((x.lane[1] + x.lane[5]) + (x.lane[3] + x.lane[7]));
  }
  static float reduce_max(const Float& x) {
    float largest = x.lane[0];
    for (int i = 1; i < kWidth; ++i) largest = x.lane[i] > largest ? x.lane[i] : largest;
    return largest;
  }
};

#include "common/cpu/row_kernels.inl"

}  // namespace

extern const RowKernels kRowKernelsGeneric;
const RowKernels kRowKernelsGeneric = make_table("generic");

}  // namespace hetero_spec
