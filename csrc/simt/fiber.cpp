// SPDX-License-Identifier: Apache-2.0
#include "simt/fiber.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <new>
#include <vector>

#include "simt/race.h"

#if HETERO_SPEC_SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// hetero_spec_simt_switch(save, load): push what the caller expects preserved, exchange stack
// pointers, pop the same registers from the other stack, and return there.
#if defined(__x86_64__)
asm(R"(
.text
.globl hetero_spec_simt_switch
.hidden hetero_spec_simt_switch
.type hetero_spec_simt_switch,@function
hetero_spec_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size hetero_spec_simt_switch,.-hetero_spec_simt_switch
.section .note.GNU-stack,"",@progbits
.text
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl hetero_spec_simt_switch
.hidden hetero_spec_simt_switch
.type hetero_spec_simt_switch,%function
hetero_spec_simt_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size hetero_spec_simt_switch,.-hetero_spec_simt_switch
.section .note.GNU-stack,"",%progbits
.text
)");
#else
#error "write hetero_spec_simt_switch for this processor: save the preserved registers, swap stacks"
#endif
extern "C" void hetero_spec_simt_switch(void** save, void* load);

namespace hetero_spec::simt {
namespace {

constexpr std::size_t kPageBytes = 4096;
#if HETERO_SPEC_SIMT_ASAN
constexpr std::size_t kStackBytes = 256 << 10;  // red zones make frames several times larger
#else
constexpr std::size_t kStackBytes = 64 << 10;
#endif

struct Pool {
  std::vector<unsigned char*> free, set_aside;
  void* scheduler_stack_pointer = nullptr;
  const void* scheduler_stack = nullptr;  // ASan: the bounds of the stack to come back to
  std::size_t scheduler_stack_bytes = 0;
  void* scheduler_race_fiber = nullptr;
};
Pool g_pool;

// What the switch pops at the very first entry: zeroed registers, then the entry's address.
void* first_frame(unsigned char* top, void (*entry)()) {
  auto** words = reinterpret_cast<void**>(top);
#if defined(__x86_64__)
  words -= 8;  // six registers, the return address, and one word for the alignment after a call
  for (int word = 0; word < 8; ++word) words[word] = nullptr;
  words[6] = reinterpret_cast<void*>(entry);
#else
  words -= 20;
  for (int word = 0; word < 20; ++word) words[word] = nullptr;
  words[11] = reinterpret_cast<void*>(entry);  // x30, the link register
#endif
  return words;
}

}  // namespace

unsigned char* reserve_pages(std::size_t bytes) {
  const long at = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == -1) throw std::bad_alloc();
  return reinterpret_cast<unsigned char*>(at);
}

void prepare_fiber(Fiber& fiber, void (*entry)(), unsigned colour) {
  if (g_pool.free.empty()) {
    unsigned char* pages = reserve_pages(kStackBytes + kPageBytes);
    mprotect(pages, kPageBytes, PROT_NONE);  // an overflow faults instead of corrupting a neighbour
    fiber.stack = pages + kPageBytes;
  } else {
    fiber.stack = g_pool.free.back();
    g_pool.free.pop_back();
#if HETERO_SPEC_SIMT_ASAN
    __asan_unpoison_memory_region(fiber.stack, kStackBytes);
#endif
  }
  fiber.stack_pointer = first_frame(fiber.stack + kStackBytes - colour % 16 * 256, entry);
}

void retire_fiber(Fiber& fiber, bool reusable_at_once) {
  if (fiber.stack == nullptr) return;
  (reusable_at_once ? g_pool.free : g_pool.set_aside).push_back(fiber.stack);
  fiber.stack = nullptr;
}

void recycle_stacks() {
  g_pool.free.insert(g_pool.free.end(), g_pool.set_aside.begin(), g_pool.set_aside.end());
  g_pool.set_aside.clear();
}

void enter_fiber(Fiber& fiber) {
#if HETERO_SPEC_SIMT_ASAN
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, fiber.stack, kStackBytes);
#endif
  g_pool.scheduler_race_fiber = race::current_fiber();
  race::switch_to(fiber.race_fiber);
  hetero_spec_simt_switch(&g_pool.scheduler_stack_pointer, fiber.stack_pointer);
#if HETERO_SPEC_SIMT_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void leave_fiber(Fiber& fiber, [[maybe_unused]] bool for_good) {
#if HETERO_SPEC_SIMT_ASAN
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack, g_pool.scheduler_stack,
                                 g_pool.scheduler_stack_bytes);
#endif
  race::switch_to(g_pool.scheduler_race_fiber);
  hetero_spec_simt_switch(&fiber.stack_pointer, g_pool.scheduler_stack_pointer);
#if HETERO_SPEC_SIMT_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, &g_pool.scheduler_stack,
                                  &g_pool.scheduler_stack_bytes);
#endif
}

void fiber_started() {
#if HETERO_SPEC_SIMT_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &g_pool.scheduler_stack, &g_pool.scheduler_stack_bytes);
#endif
}

}  // namespace hetero_spec::simt
