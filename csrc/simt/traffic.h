// SPDX-License-Identifier: Apache-2.0
// Counts what kernels ask of memory. In every build but "traffic" these functions are empty.
//
// The traffic build compiles kernels with -fsanitize=thread but links our own __tsan_* functions in
// place of the sanitizer's: the compiler then reports every load and store, and they are added up
// here. The numbers depend on no machine. They are traffic requested, not time, cache hits or DRAM.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hetero_spec::simt::traffic {

struct Buffer {  // one cudaMalloc
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  std::uint64_t load_bytes = 0, store_bytes = 0;
};

struct Traffic {
  std::uint64_t load_bytes = 0, store_bytes = 0;        // of global memory
  std::uint64_t wide_load_bytes = 0;                    // by 16-byte accesses
  std::uint64_t atomics = 0;                            // on global memory
  std::uint64_t load_requests = 0, load_sectors = 0;    // one request = one instruction of one warp
  std::uint64_t store_requests = 0, store_sectors = 0;  // sectors of 32 bytes touched, per request
  std::uint64_t unique_load_sectors = 0;                // each sector counted once
  std::uint64_t shared_requests = 0;
  std::uint64_t shared_wavefronts = 0;           // more than requests: bank conflicts
  std::uint64_t uninitialised_shared_loads = 0;  // loads of shared memory that nobody has written
  std::vector<Buffer> buffers;
};

enum class Access { kLoad, kStore, kAtomic };

#if defined(HETERO_SPEC_SIMT_TRAFFIC)
inline constexpr bool kEnabled = true;
void access(const void* program_counter, const void* address, std::size_t bytes, Access kind);
void buffer_created(const void* address, std::size_t bytes);
void buffer_released(const void* address);
void shared_object_created(const void* address, std::size_t bytes);
void launch_ended();
Traffic take();  // since the last call
#else
inline constexpr bool kEnabled = false;
inline void access(const void*, const void*, std::size_t, Access) {}
inline void buffer_created(const void*, std::size_t) {}
inline void buffer_released(const void*) {}
inline void shared_object_created(const void*, std::size_t) {}
inline void launch_ended() {}
inline Traffic take() { return {}; }
#endif

}  // namespace hetero_spec::simt::traffic
