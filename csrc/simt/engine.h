// SPDX-License-Identifier: Apache-2.0
// Runs CUDA grids on one host thread: one fiber per CUDA thread.
//
// A CUDA thread gives way only where it may have to wait for another (barriers, warp exchange,
// __nanosleep) and, with Options::preempt, at every atomic and fence. Which runnable thread goes
// next is Options::order's choice: the schedule is the test's knob, and a schedule is repeatable.
//
// Faults of a kernel that the engine itself can see are thrown as Error out of the launch, with
// block, thread, file and line: barriers that not all threads reach or that differ, warp masks that
// leave out the caller or name a thread that has returned, threads that wait for each other,
// misaligned vector access, shared memory used up, endless spinning. Not thread-safe: run tests in
// parallel as processes.
#pragma once
#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>

namespace hetero_spec::simt {

using Site = std::source_location;

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Order { kForward, kReverse, kRandom };

struct Options {
  Order order = Order::kForward;
  std::uint64_t seed = 1;               // of Order::kRandom
  unsigned resident_blocks = 1;         // blocks alive together; 1 = one after another
  bool preempt = false;                 // switch also at every atomic and fence
  bool deferred_streams = false;        // queue work until a synchronising call, as a device may
  std::size_t shared_limit = 48 << 10;  // bytes of shared memory a block may have
  std::uint64_t spin_limit = 10000;     // fruitless yields in a row, for each resident thread
  int multiprocessors = 132;            // what cudaDeviceGetAttribute says
};
const Options& options();
void configure(const Options& options);  // also restarts the random schedule from its seed

std::uint64_t switch_count();  // context switches since the program started, for reports
std::uint64_t launch_count();  // kernels run since the program started

// ---- for device.h ------------------------------------------------------------------------------

enum class WarpOp : std::uint8_t {
  kSync,
  kShuffle,
  kBallot,
  kMatchAny,
  kAdd,
  kMin,
  kMax,
  kSignedMin,
  kSignedMax,
  kAnd,
  kOr,
  kXor
};
enum class Vote : std::uint8_t { kNone, kAnd, kOr, kCount };
enum class FenceScope : std::uint8_t { kBlock, kDevice };

std::uint64_t warp_operation(WarpOp op, unsigned mask, std::uint64_t value, unsigned source,
                             Site site);
unsigned block_barrier(bool predicate, Vote vote, Site site);
void fence(FenceScope scope, Site site);
void before_atomic(const void* address, std::size_t bytes, Site site);
void after_atomic(const void* address, bool changed, Site site);
void yield_thread(Site site);
unsigned lane_index();
void* shared_static(const void* key, std::size_t bytes, std::size_t alignment, Site site);
void* shared_dynamic(Site site);
[[noreturn]] void fail(const char* what, Site site);

// Runs a whole grid; `body` is what one CUDA thread does.
void run_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
              const std::function<void()>& body);

// ---- streams (cuda_runtime.cpp)
// ------------------------------------------------------------------

// Runs `work` now, or with Options::deferred_streams when the stream is synchronised.
void enqueue(const void* stream, std::function<void()> work);

// While one of these lives, device memory may be touched (AddressSanitizer build: it is poisoned
// otherwise, so that host code that dereferences a device pointer is caught).
class DeviceMemoryAccess {
 public:
  DeviceMemoryAccess();
  ~DeviceMemoryAccess();
  DeviceMemoryAccess(const DeviceMemoryAccess&) = delete;
  DeviceMemoryAccess& operator=(const DeviceMemoryAccess&) = delete;
};

// ---- for traffic.cpp
// -----------------------------------------------------------------------------

struct Place {  // where the running CUDA thread is
  std::uint64_t block = 0;
  unsigned thread = 0;
  std::uintptr_t shared_begin = 0, shared_end = 0;
};
bool current_place(Place& place);  // false outside a kernel

}  // namespace hetero_spec::simt

// The built-in variables, kept current by the scheduler at each switch.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;
