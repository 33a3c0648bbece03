// SPDX-License-Identifier: Apache-2.0
// The vocabulary of CUDA C++ for a host compiler. Kernels include it through common/gpu.cuh.
//
// Numbers: NVIDIA's own host code does fp16, bf16 and the vector types. Float functions are the
// host's and may differ from the device's in the last bits; integer code is the same bit for bit.
// Not here on purpose: __shared__ (use gpu.cuh's shared<T>()), <<<>>>, __activemask, textures,
// printf.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "simt/engine.h"
#include "simt/traffic.h"

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __grid_constant__
#undef __restrict__
#define __global__
#define __device__
#define __host__
#define __constant__
// always_inline, not a hint: GCC's ThreadSanitizer overlooks a by-value argument being read.
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

#define HETERO_SPEC_SITE ::hetero_spec::simt::Site site = ::hetero_spec::simt::Site::current()

// ---- synchronisation
// -----------------------------------------------------------------------------

inline void __syncthreads(HETERO_SPEC_SITE) {
  hetero_spec::simt::block_barrier(false, hetero_spec::simt::Vote::kNone, site);
}
inline int __syncthreads_and(int predicate, HETERO_SPEC_SITE) {
  using namespace hetero_spec::simt;
  return int(block_barrier(predicate != 0, Vote::kAnd, site));
}
inline int __syncthreads_or(int predicate, HETERO_SPEC_SITE) {
  using namespace hetero_spec::simt;
  return int(block_barrier(predicate != 0, Vote::kOr, site));
}
inline int __syncthreads_count(int predicate, HETERO_SPEC_SITE) {
  using namespace hetero_spec::simt;
  return int(block_barrier(predicate != 0, Vote::kCount, site));
}
inline void __syncwarp(unsigned mask = 0xffffffffu, HETERO_SPEC_SITE) {
  hetero_spec::simt::warp_operation(hetero_spec::simt::WarpOp::kSync, mask, 0, 0, site);
}
inline void __threadfence(HETERO_SPEC_SITE) {
  hetero_spec::simt::fence(hetero_spec::simt::FenceScope::kDevice, site);
}
inline void __threadfence_block(HETERO_SPEC_SITE) {
  hetero_spec::simt::fence(hetero_spec::simt::FenceScope::kBlock, site);
}
inline void __nanosleep(unsigned, HETERO_SPEC_SITE) { hetero_spec::simt::yield_thread(site); }

// ---- warp exchange
// -------------------------------------------------------------------------------

namespace hetero_spec::simt {

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8, "at most 8 bytes a lane");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline void check_width(int width, Site site) {
  if (width <= 0 || width > 32 || (width & (width - 1)) != 0) {
    fail("a shuffle's width must be a power of two up to 32", site);
  }
}

template <class T>
T shuffle(unsigned mask, T value, unsigned source, Site site) {
  return from_bits<T>(warp_operation(WarpOp::kShuffle, mask, to_bits(value), source, site));
}

}  // namespace hetero_spec::simt

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, HETERO_SPEC_SITE) {
  hetero_spec::simt::check_width(width, site);
  const unsigned segment = hetero_spec::simt::lane_index() & ~unsigned(width - 1);
  return hetero_spec::simt::shuffle(mask, value, segment | (unsigned(source) & unsigned(width - 1)),
                                    site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, HETERO_SPEC_SITE) {
  hetero_spec::simt::check_width(width, site);
  const unsigned lane = hetero_spec::simt::lane_index();
  const unsigned source = lane ^ unsigned(lane_mask);
  const unsigned end = (lane & ~unsigned(width - 1)) + unsigned(width);
  return hetero_spec::simt::shuffle(mask, value, source < end ? source : lane, site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, HETERO_SPEC_SITE) {
  hetero_spec::simt::check_width(width, site);
  const unsigned lane = hetero_spec::simt::lane_index(), within = lane & unsigned(width - 1);
  return hetero_spec::simt::shuffle(mask, value,
                                    within + delta < unsigned(width) ? lane + delta : lane, site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, HETERO_SPEC_SITE) {
  hetero_spec::simt::check_width(width, site);
  const unsigned lane = hetero_spec::simt::lane_index(), within = lane & unsigned(width - 1);
  return hetero_spec::simt::shuffle(mask, value, within >= delta ? lane - delta : lane, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, HETERO_SPEC_SITE) {
  using namespace hetero_spec::simt;
  return unsigned(warp_operation(WarpOp::kBallot, mask, predicate != 0, 0, site));
}
inline int __any_sync(unsigned mask, int predicate, HETERO_SPEC_SITE) {
  return __ballot_sync(mask, predicate, site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, HETERO_SPEC_SITE) {
  return __ballot_sync(mask, predicate == 0, site) == 0;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, HETERO_SPEC_SITE) {
  using namespace hetero_spec::simt;
  return unsigned(warp_operation(WarpOp::kMatchAny, mask, to_bits(value), 0, site));
}

#define HETERO_SPEC_REDUCE(name, UnsignedOp, SignedOp)                                      \
  inline unsigned __reduce_##name##_sync(unsigned mask, unsigned value, HETERO_SPEC_SITE) { \
    using namespace hetero_spec::simt;                                                      \
    return unsigned(warp_operation(WarpOp::UnsignedOp, mask, value, 0, site));              \
  }                                                                                         \
  inline int __reduce_##name##_sync(unsigned mask, int value, HETERO_SPEC_SITE) {           \
    using namespace hetero_spec::simt;                                                      \
    return int(unsigned(warp_operation(WarpOp::SignedOp, mask, unsigned(value), 0, site))); \
  }
HETERO_SPEC_REDUCE(add, kAdd, kAdd)
HETERO_SPEC_REDUCE(min, kMin, kSignedMin)
HETERO_SPEC_REDUCE(max, kMax, kSignedMax)
HETERO_SPEC_REDUCE(and, kAnd, kAnd)
HETERO_SPEC_REDUCE(or, kOr, kOr)
HETERO_SPEC_REDUCE(xor, kXor, kXor)
#undef HETERO_SPEC_REDUCE

// ---- atomics: relaxed, as on the device
// ----------------------------------------------------------

namespace hetero_spec::simt {

template <class T, class F>
T read_modify_write(T* address, F&& modify, Site site) {
  before_atomic(address, sizeof(T), site);
  traffic::access(nullptr, address, sizeof(T), traffic::Access::kAtomic);
  T old, changed;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  do {
    changed = modify(old);
  } while (!__atomic_compare_exchange(address, &old, &changed, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED));
  after_atomic(address, std::memcmp(&old, &changed, sizeof(T)) != 0, site);
  return old;
}

}  // namespace hetero_spec::simt

#define HETERO_SPEC_ATOMIC(name, expression)                            \
  template <class T>                                                    \
  T name(T* address, std::type_identity_t<T> value, HETERO_SPEC_SITE) { \
    return hetero_spec::simt::read_modify_write(                        \
        address, [value](T old) { return T(expression); }, site);       \
  }
HETERO_SPEC_ATOMIC(atomicAdd, old + value)
HETERO_SPEC_ATOMIC(atomicSub, old - value)
HETERO_SPEC_ATOMIC(atomicMax, old > value ? old : value)
HETERO_SPEC_ATOMIC(atomicMin, old < value ? old : value)
HETERO_SPEC_ATOMIC(atomicOr, old | value)
HETERO_SPEC_ATOMIC(atomicAnd, old& value)
HETERO_SPEC_ATOMIC(atomicXor, old ^ value)
#undef HETERO_SPEC_ATOMIC
template <class T>
T atomicExch(T* address, std::type_identity_t<T> value, HETERO_SPEC_SITE) {
  return hetero_spec::simt::read_modify_write(address, [value](T) { return value; }, site);
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value,
            HETERO_SPEC_SITE) {
  return hetero_spec::simt::read_modify_write(
      address, [compare, value](T old) { return old == compare ? value : old; }, site);
}
inline unsigned atomicInc(unsigned* address, unsigned limit, HETERO_SPEC_SITE) {
  return hetero_spec::simt::read_modify_write(
      address, [limit](unsigned old) { return old >= limit ? 0u : old + 1; }, site);
}

// ---- loads and stores with a cache hint: aligned to the access, as on the device
// -----------------

namespace hetero_spec::simt {

template <class T>
void check_aligned(const T* address, Site site) {
  if (reinterpret_cast<std::uintptr_t>(address) % sizeof(T) != 0) {
    fail("misaligned vector access", site);
  }
}

#if defined(HETERO_SPEC_SIMT_TRAFFIC)
// One access, as the device makes it, whatever the host compiler would split it into.
template <class T>
__attribute__((noinline, no_sanitize("thread"))) T hinted_load(const T* address, Site site) {
  check_aligned(address, site);
  traffic::access(__builtin_return_address(0), address, sizeof(T), traffic::Access::kLoad);
  return *address;
}
template <class T>
__attribute__((noinline, no_sanitize("thread"))) void hinted_store(T* address, T value, Site site) {
  check_aligned(address, site);
  traffic::access(__builtin_return_address(0), address, sizeof(T), traffic::Access::kStore);
  *address = value;
}
#else
template <class T>
__forceinline__ T hinted_load(const T* address, Site site) {
  check_aligned(address, site);
  return *address;
}
template <class T>
__forceinline__ void hinted_store(T* address, T value, Site site) {
  check_aligned(address, site);
  *address = value;
}
#endif

}  // namespace hetero_spec::simt

#define HETERO_SPEC_LOAD(name)                                 \
  template <class T>                                           \
  __forceinline__ T name(const T* address, HETERO_SPEC_SITE) { \
    return hetero_spec::simt::hinted_load(address, site);      \
  }
#define HETERO_SPEC_STORE(name)                                                            \
  template <class T>                                                                       \
  __forceinline__ void name(T* address, std::type_identity_t<T> value, HETERO_SPEC_SITE) { \
    hetero_spec::simt::hinted_store(address, value, site);                                 \
  }
HETERO_SPEC_LOAD(__ldg)
HETERO_SPEC_LOAD(__ldca)
HETERO_SPEC_LOAD(__ldcg)
HETERO_SPEC_LOAD(__ldcs)
HETERO_SPEC_LOAD(__ldlu)
HETERO_SPEC_STORE(__stcg)
HETERO_SPEC_STORE(__stcs)
HETERO_SPEC_STORE(__stwb)
HETERO_SPEC_STORE(__stwt)
#undef HETERO_SPEC_LOAD
#undef HETERO_SPEC_STORE

// ---- arithmetic
// ----------------------------------------------------------------------------------

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }
inline double __longlong_as_double(long long bits) { return std::bit_cast<double>(bits); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((std::uint64_t(a) * b) >> 32); }
inline int __popc(unsigned value) { return std::popcount(value); }
inline int __popcll(unsigned long long value) { return std::popcount(value); }
inline int __clz(int value) { return std::countl_zero(unsigned(value)); }
inline int __ffs(int value) { return value != 0 ? std::countr_zero(unsigned(value)) + 1 : 0; }
inline unsigned __brev(unsigned value) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (value >> bit & 1u) << (31 - bit);
  return reversed;
}
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
using std::max;
using std::min;

// ---- launch: typed, as the CUDA runtime's own
// ------------------------------------------------------

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  // The arguments are copied now, as on the device, however late the stream comes to run them.
  std::tuple<Parameters...> values{std::forward<Arguments>(arguments)...};
  const cudaLaunchConfig_t copy = *config;
  hetero_spec::simt::enqueue(config->stream, [copy, kernel, values] {
    hetero_spec::simt::run_grid(copy.gridDim, copy.blockDim, copy.dynamicSmemBytes,
                                [&] { std::apply(kernel, values); });
  });
  return cudaSuccess;
}
