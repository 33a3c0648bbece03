// SPDX-License-Identifier: Apache-2.0
// A fiber: one stack, and the registers with which to go on. The engine gives every CUDA thread
// one.
//
// Switching saves only what a function call must preserve, by hand: ucontext costs several times
// more, and an operating system thread per CUDA thread several thousand times more.
// The sanitizers are told of every switch here, so that the rest of the engine need not know them.
#pragma once
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define HETERO_SPEC_SIMT_ASAN 1
#endif

namespace hetero_spec::simt {

struct Fiber {
  void* stack_pointer = nullptr;
  unsigned char* stack = nullptr;  // lowest usable byte; the page below it is unmapped
  void* race_fiber = nullptr;      // ThreadSanitizer's handle, race build only
};

// Memory from the kernel itself, past every interceptor: it belongs to the simulated device.
unsigned char* reserve_pages(std::size_t bytes);

// Gives the fiber a stack (recycled or new) on which `entry` starts at the first enter_fiber.
// `colour` shifts the stack's top, so that fibers do not all compete for the same cache sets.
void prepare_fiber(Fiber& fiber, void (*entry)(), unsigned colour);

// Takes the stack away again; the fiber may have been abandoned in the middle of a call.
// `reusable_at_once`: false keeps it aside until recycle_stacks().
void retire_fiber(Fiber& fiber, bool reusable_at_once);
void recycle_stacks();

void enter_fiber(Fiber& fiber);                 // scheduler -> fiber
void leave_fiber(Fiber& fiber, bool for_good);  // fiber -> scheduler
void fiber_started();                           // first statement of every entry function

}  // namespace hetero_spec::simt
