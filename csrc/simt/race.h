// SPDX-License-Identifier: Apache-2.0
// What the race build tells ThreadSanitizer. In every other build these functions are empty.
//
// Kernels are compiled with -fsanitize=thread, the engine is not: TSan sees every access of kernel
// code, and learns the order between CUDA threads only from here. Each CUDA thread is a TSan fiber;
// switching fibers creates no order, so a race is found by happens-before, whatever the schedule.
//
// The rules come from the PTX memory model: barriers order memory, shuffles and votes do not, and a
// relaxed atomic does only between fences: fence, atomic ... the same atomic elsewhere, fence.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hetero_spec::simt::race {

inline constexpr unsigned kThreadWords = 4;
// ThreadSanitizer ends the process at 8128 threads; some are helpers (race.cpp).
inline constexpr unsigned kMostThreads = 7168;

#if defined(HETERO_SPEC_SIMT_TSAN)

inline constexpr bool kEnabled = true;

void* current_fiber();
void switch_to(void* fiber);

// What one CUDA thread's fences and atomics have said so far.
struct Memory {
  void* self = nullptr;
  // TSan fibers that know exactly what preceded this thread's fences (publishers) and what its
  // atomics have read from others (observers), for each scope.
  void *device_publisher = nullptr, *block_publisher = nullptr;
  void *device_observer = nullptr, *block_observer = nullptr;
  bool fenced_device = false, fenced_block = false;
  std::uint64_t* words = nullptr;  // kThreadWords addresses that are this thread's alone
};

// A launch: begin() before the first thread runs, end() when all are done.
void begin_launch();
void end_launch(bool abandoned);
void* take_fiber();  // a TSan fiber no other CUDA thread of this launch has
void begin_thread(Memory& memory, void* fiber, std::uint64_t* words);
void end_thread();
void abandon_thread(void* fiber);  // from outside: a thread that will never end

// A meeting point. Both are called on behalf of waiting threads, whose clocks stand still.
void arrive(void* fiber, void* meeting);
void depart(void* fiber, void* meeting);
void come_back(void* fiber);

enum class Scope : std::uint8_t { kBlock, kDevice };
void fence(Memory& memory, Scope scope);
// `block_twin`: an address that stands for `address` among the threads of one block.
void atomic_read(Memory& memory, const void* address, void* block_twin);
void atomic_write(Memory& memory, const void* address, void* block_twin);

#else

inline constexpr bool kEnabled = false;

struct Memory {};
enum class Scope : std::uint8_t { kBlock, kDevice };
inline void* current_fiber() { return nullptr; }
inline void switch_to(void*) {}
inline void begin_launch() {}
inline void end_launch(bool) {}
inline void* take_fiber() { return nullptr; }
inline void begin_thread(Memory&, void*, std::uint64_t*) {}
inline void end_thread() {}
inline void abandon_thread(void*) {}
inline void arrive(void*, void*) {}
inline void depart(void*, void*) {}
inline void come_back(void*) {}
inline void fence(Memory&, Scope) {}
inline void atomic_read(Memory&, const void*, void*) {}
inline void atomic_write(Memory&, const void*, void*) {}

#endif

}  // namespace hetero_spec::simt::race
