// SPDX-License-Identifier: Apache-2.0
// Reading a row of logits: 16 bytes a lane wherever the row starts, always the same ids in the same
// lane.
//
// A warp step covers kWarpLanes * kPack consecutive ids; lane l holds ids [l * kPack, (l + 1) *
// kPack). Which ids a lane holds decides the order of its sums, so it must not depend on the row's
// address: of a row that is not 16-byte aligned, each lane loads the aligned 16 bytes in which its
// first id lies, takes the rest from the next lane and shifts. That costs one load in 32 more,
// where unaligned scalar loads would make eight of one.
#pragma once

#include "common/gpu.cuh"

namespace hetero_spec {

constexpr int kWarpLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ float neg_inf() { return __int_as_float(0xff800000); }
__device__ __forceinline__ float quiet_nan() { return __int_as_float(0x7fc00000); }

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

// Ids of type T in 16 bytes.
template <class T>
constexpr int kPack = 16 / static_cast<int>(sizeof(T));

// Warp steps whose loads are in flight together: 16 ids a lane, whatever the type. More would cost
// registers, and with them the warps that hide the latency just as well.
template <class T>
constexpr int kBatchSteps = 16 / kPack<T>;

// One row of logits, and which of its ids count (one bit an id, null: all of them).
template <class T>
struct RowView {
  const T* logits;
  int64_t size;
  const uint32_t* mask;

  __device__ __forceinline__ bool counts(int64_t id) const {
    return mask == nullptr || (mask[id / 32] >> (id % 32) & 1u) != 0;
  }
};

// Values of one pack as floats.
__device__ __forceinline__ void unpack(uint4 words, float (&out)[4], const float*) {
  out[0] = __uint_as_float(words.x);
  out[1] = __uint_as_float(words.y);
  out[2] = __uint_as_float(words.z);
  out[3] = __uint_as_float(words.w);
}
__device__ __forceinline__ void unpack(uint4 words, float (&out)[8], const __nv_bfloat16*) {
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {  // a bfloat16 is the upper half of a float
    out[2 * pair] = __uint_as_float(word[pair] << 16);
    out[2 * pair + 1] = __uint_as_float(word[pair] & 0xffff0000u);
  }
}
__device__ __forceinline__ void unpack(uint4 words, float (&out)[8], const __half*) {
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    __half_raw low, high;
    low.x = static_cast<unsigned short>(word[pair] & 0xffffu);
    high.x = static_cast<unsigned short>(word[pair] >> 16);
    out[2 * pair] = __half2float(__half(low));
    out[2 * pair + 1] = __half2float(__half(high));
  }
}

// Bytes [shift, shift + 16) of the 32 bytes (low, high); shift is even and below 16.
__device__ __forceinline__ uint4 shift_bytes(uint4 low, uint4 high, unsigned shift) {
  uint32_t word[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  if (shift & 8u) {
#pragma unroll
    for (int at = 0; at < 6; ++at) word[at] = word[at + 2];
  }
  if (shift & 4u) {
#pragma unroll
    for (int at = 0; at < 5; ++at) word[at] = word[at + 1];
  }
  if (shift & 2u) {
#pragma unroll
    for (int at = 0; at < 4; ++at) word[at] = word[at] >> 16 | word[at + 1] << 16;
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

__device__ __forceinline__ uint4 from_next_lane(uint4 words) {
  return make_uint4(
      __shfl_down_sync(kAllLanes, words.x, 1), __shfl_down_sync(kAllLanes, words.y, 1),
      __shfl_down_sync(kAllLanes, words.z, 1), __shfl_down_sync(kAllLanes, words.w, 1));
}

// The logits of kSteps warp steps from id `first` on, a multiple of kSteps steps: lane l gets, of
// step s, ids first + s * kStep + l * kPack and following. Ids beyond the row and ids that do not
// count come as -inf. All loads are issued before the first is waited for.
template <int kSteps, class T>
__device__ __forceinline__ void load_steps(const RowView<T>& row, int64_t first, int lane,
                                           float (&out)[kSteps][kPack<T>]) {
  constexpr int kStep = kWarpLanes * kPack<T>;
  const int64_t id = first + lane * kPack<T>;
  const T* address = row.logits + id;
  const unsigned shift = static_cast<unsigned>(reinterpret_cast<uintptr_t>(row.logits) % 16);
  // The aligned loads of a shifted row begin up to 15 bytes before a step and end as many after it.
  const bool whole = first + kSteps * kStep + (shift != 0 ? kPack<T> : 0) <= row.size &&
                     (shift == 0 || first != 0);
  if (whole) {
    const char* aligned = reinterpret_cast<const char*>(address) - shift;
    uint4 words[kSteps];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      words[step] = __ldg(reinterpret_cast<const uint4*>(aligned + step * kStep * sizeof(T)));
    }
    if (shift != 0) {
      uint4 beyond[kSteps] = {};  // the last lane has no next one
      if (lane == kWarpLanes - 1) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          beyond[step] =
              __ldg(reinterpret_cast<const uint4*>(aligned + step * kStep * sizeof(T) + 16));
        }
      }
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint4 next = from_next_lane(words[step]);
        if (lane == kWarpLanes - 1) next = beyond[step];
        words[step] = shift_bytes(words[step], next, shift);
      }
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) unpack(words[step], out[step], address);
  } else {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int64_t at = id + step * kStep;
      if (shift == 0 && at + kPack<T> <= row.size) {
        unpack(__ldg(reinterpret_cast<const uint4*>(row.logits + at)), out[step], address);
      } else {
#pragma unroll
        for (int n = 0; n < kPack<T>; ++n) {
          out[step][n] = at + n < row.size ? to_float(row.logits[at + n]) : neg_inf();
        }
      }
    }
  }
  if (row.mask != nullptr) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int64_t at = id + step * kStep;
      const uint32_t bits = at < row.size ? row.mask[at / 32] >> (at % 32) : 0;
#pragma unroll
      for (int n = 0; n < kPack<T>; ++n) {
        if ((bits >> n & 1u) == 0) out[step][n] = neg_inf();
      }
    }
  }
}

}  // namespace hetero_spec
