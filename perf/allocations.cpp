// SPDX-License-Identifier: Apache-2.0
// Counts the heap of a process, for perf/memory.py: loaded with LD_PRELOAD, it stands before the C
// library's allocator and keeps, between two calls of allocations_start and allocations_read, the
// bytes alive above the start, their peak, and the largest single request. operator new and torch's
// allocator both end here.
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> alive{0}, peak{0}, largest{0};

template <class F>
F* next(F*& cached, const char* name) {
  if (!cached) cached = reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
  return cached;
}

void raise_to(std::atomic<int64_t>& record, int64_t value) {
  int64_t seen = record.load();
  while (value > seen && !record.compare_exchange_weak(seen, value)) {
  }
}

void* took(void* block, size_t size) {
  if (counting && block) {
    raise_to(largest, static_cast<int64_t>(size));
    raise_to(peak, alive += static_cast<int64_t>(malloc_usable_size(block)));
  }
  return block;
}

void gives(void* block) {
  if (counting && block) alive -= static_cast<int64_t>(malloc_usable_size(block));
}

void* (*real_malloc)(size_t);
void* (*real_calloc)(size_t, size_t);
void* (*real_realloc)(void*, size_t);
void (*real_free)(void*);
int (*real_posix_memalign)(void**, size_t, size_t);
void* (*real_aligned_alloc)(size_t, size_t);
void* (*real_memalign)(size_t, size_t);

// dlsym itself may ask for memory before the real allocator is known.
alignas(16) char early[1 << 16];
std::atomic<size_t> early_used{0};
bool is_early(const void* block) { return block >= early && block < early + sizeof(early); }
thread_local bool looking_up = false;

}  // namespace

extern "C" {

void allocations_start() {
  alive = peak = largest = 0;
  counting = true;
}

void allocations_read(int64_t* peak_bytes, int64_t* largest_bytes) {
  counting = false;
  *peak_bytes = peak;
  *largest_bytes = largest;
}

void* malloc(size_t size) { return took(next(real_malloc, "malloc")(size), size); }

void* calloc(size_t count, size_t size) {
  if (!real_calloc) {
    if (looking_up) {
      const size_t bytes = (count * size + 15) / 16 * 16;
      const size_t at = early_used.fetch_add(bytes);
      return at + bytes <= sizeof(early) ? early + at : nullptr;
    }
    looking_up = true;
    next(real_calloc, "calloc");
    looking_up = false;
  }
  return took(real_calloc(count, size), count * size);
}

void* realloc(void* block, size_t size) {
  if (is_early(block)) {
    void* moved = malloc(size);
    if (moved) memcpy(moved, block, size);
    return moved;
  }
  gives(block);
  return took(next(real_realloc, "realloc")(block, size), size);
}

void free(void* block) {
  if (is_early(block)) return;
  gives(block);
  next(real_free, "free")(block);
}

int posix_memalign(void** block, size_t alignment, size_t size) {
  const int error = next(real_posix_memalign, "posix_memalign")(block, alignment, size);
  if (error == 0) took(*block, size);
  return error;
}

void* aligned_alloc(size_t alignment, size_t size) {
  return took(next(real_aligned_alloc, "aligned_alloc")(alignment, size), size);
}

void* memalign(size_t alignment, size_t size) {
  return took(next(real_memalign, "memalign")(alignment, size), size);
}

}  // extern "C"
