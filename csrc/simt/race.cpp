// SPDX-License-Identifier: Apache-2.0
#include "simt/race.h"

#if defined(HETERO_SPEC_SIMT_TSAN)
#include <sanitizer/tsan_interface.h>

#include <algorithm>
#include <iterator>
#include <vector>

extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);

namespace hetero_spec::simt::race {
namespace {

enum Word { kFencedDevice, kFencedBlock, kObservedDevice, kObservedBlock };

// TSan fibers are dear to create (about half a millisecond) and are kept for the next launch.
// Within a launch none is used twice: a second CUDA thread on the same fiber would inherit its
// clock, and races between the two would be invisible.
std::vector<void*> g_fibers;
std::size_t g_fibers_used = 0;
void* g_creator = nullptr;    // a new fiber knows all that its creator does: this one knows nothing
char g_start = 0, g_end = 0;  // two objects: one would order the first thread's end before the rest

// The addresses that some atomic after a fence has written in this launch: only from these can
// another thread learn anything, so that the many atomics of a histogram need no helpers. No
// allocation here: it would itself be seen as one CUDA thread's memory.
constexpr std::size_t kPublishedSlots = 1 << 14;
const void* g_published[kPublishedSlots];
std::size_t g_published_count = 0;

bool is_published(const void* address, bool add) {
  if (g_published_count > kPublishedSlots / 2) return true;
  std::size_t slot = (reinterpret_cast<std::uintptr_t>(address) / 4 * 0x9e3779b97f4a7c15ull) >> 50;
  for (; g_published[slot] != nullptr; slot = (slot + 1) % kPublishedSlots) {
    if (g_published[slot] == address) return true;
  }
  if (add) {
    g_published[slot] = address;
    ++g_published_count;
  }
  return add;
}

// Runs `acquire; release` as another TSan fiber, which thereby learns and passes on nothing else.
void pass_through(void* self, void*& helper, void* from, void* to) {
  if (helper == nullptr) {
    switch_to(g_creator);
    helper = take_fiber();
  }
  switch_to(helper);
  __tsan_acquire(from);
  __tsan_release(to);
  switch_to(self);
}

}  // namespace

void* current_fiber() { return __tsan_get_current_fiber(); }
void switch_to(void* fiber) { __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync); }

void* take_fiber() {
  constexpr std::size_t kMostFibers = 8192;  // TSan's own limit of threads
  g_fibers.reserve(kMostFibers);             // no allocation later, inside a CUDA thread
  if (g_fibers_used == g_fibers.size()) g_fibers.push_back(__tsan_create_fiber(0));
  return g_fibers[g_fibers_used++];
}

void begin_launch() {
  if (g_creator == nullptr) g_creator = __tsan_create_fiber(0);
  g_fibers_used = 0;
  std::fill(std::begin(g_published), std::end(g_published), static_cast<const void*>(nullptr));
  g_published_count = 0;
  __tsan_release(&g_start);
}

void end_launch(bool abandoned) {
  __tsan_acquire(&g_end);
  if (abandoned) g_fibers.clear();  // stopped in the middle of a call: their call stacks are wrong
}

void begin_thread(Memory& memory, void* fiber, std::uint64_t* words) {
  memory = Memory{};
  memory.self = fiber;
  memory.words = words;
  __tsan_acquire(&g_start);
}

void end_thread() { __tsan_release(&g_end); }

void abandon_thread(void* fiber) {
  void* here = current_fiber();
  switch_to(fiber);
  __tsan_release(&g_end);
  switch_to(here);
}

void arrive(void* fiber, void* meeting) {
  switch_to(fiber);
  __tsan_release(meeting);
}

void depart(void* fiber, void* meeting) {
  switch_to(fiber);
  __tsan_acquire(meeting);
}

void come_back(void* fiber) { switch_to(fiber); }

// A fence publishes what came before it, to whoever sees an atomic that this thread makes later,
// and lets in what earlier atomics have seen. Both pass through helper fibers: TSan can release
// only a thread's whole present clock, which would also publish what is written between fence and
// atomic.
void fence(Memory& memory, Scope scope) {
  if (scope == Scope::kDevice) {
    if (memory.device_observer != nullptr) __tsan_acquire(&memory.words[kObservedDevice]);
    __tsan_release(&memory.words[kFencedDevice]);
    memory.fenced_device = true;
  }
  if (memory.block_observer != nullptr) __tsan_acquire(&memory.words[kObservedBlock]);
  __tsan_release(&memory.words[kFencedBlock]);
  memory.fenced_block = true;
}

void atomic_read(Memory& memory, const void* address, void* block_twin) {
  if (is_published(address, false)) {
    pass_through(memory.self, memory.device_observer, const_cast<void*>(address),
                 &memory.words[kObservedDevice]);
  }
  if (is_published(block_twin, false)) {
    pass_through(memory.self, memory.block_observer, block_twin, &memory.words[kObservedBlock]);
  }
}

void atomic_write(Memory& memory, const void* address, void* block_twin) {
  if (memory.fenced_device) {
    is_published(address, true);
    pass_through(memory.self, memory.device_publisher, &memory.words[kFencedDevice],
                 const_cast<void*>(address));
  }
  if (memory.fenced_block) {
    is_published(block_twin, true);
    pass_through(memory.self, memory.block_publisher, &memory.words[kFencedBlock], block_twin);
  }
}

}  // namespace hetero_spec::simt::race
#endif
