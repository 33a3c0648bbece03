// SPDX-License-Identifier: Apache-2.0
#include "simt/traffic.h"

#if defined(HETERO_SPEC_SIMT_TRAFFIC)
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "simt/engine.h"

namespace hetero_spec::simt::traffic {
namespace {

constexpr unsigned kLanes = 32, kBanks = 32, kBankBytes = 4, kSectorBytes = 32;

// The n-th execution of one instruction by one warp.
struct RequestKey {
  std::uintptr_t program_counter = 0;
  std::uint64_t place = 0;  // block and warp, or block and thread
  std::uint64_t execution = 0;
  bool operator==(const RequestKey&) const = default;
};
struct RequestHash {
  std::size_t operator()(const RequestKey& key) const {
    std::uint64_t h = (key.program_counter ^ key.place * 0x9e3779b97f4a7c15ull) +
                      key.execution * 0xbf58476d1ce4e5b9ull;
    h = (h ^ (h >> 29)) * 0x94d049bb133111ebull;
    return h ^ (h >> 32);
  }
};

enum class Space { kLoad, kStore, kShared };

struct Request {
  std::array<std::uintptr_t, kLanes> address;
  std::array<std::uint16_t, kLanes> bytes;
  unsigned lanes = 0;
  Space space = Space::kLoad;
};

struct Counter {
  std::map<std::uintptr_t, Buffer> buffers;
  std::vector<Buffer> released;  // with traffic since the last take()
  std::unordered_map<RequestKey, std::uint64_t, RequestHash> executions;
  std::unordered_map<RequestKey, Request, RequestHash> open;
  std::unordered_set<std::uintptr_t> sectors;
  // Bytes of shared memory that have been written, of the arena in use; one flag a byte.
  std::unordered_map<std::uintptr_t, std::vector<bool>> written;  // by object address
  Traffic sum;
};
Counter& counter() {
  static Counter& instance = *new Counter;  // outlives every static destructor that frees memory
  return instance;
}

Buffer* buffer_of(std::uintptr_t address, std::size_t bytes) {
  auto& buffers = counter().buffers;
  auto after = buffers.upper_bound(address);
  if (after == buffers.begin()) return nullptr;
  Buffer& buffer = std::prev(after)->second;
  return address + bytes <= buffer.address + buffer.bytes ? &buffer : nullptr;
}

void fold_global(const Request& request) {
  std::array<std::uintptr_t, kLanes * 8> touched;
  std::size_t count = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if ((request.lanes >> lane & 1) == 0) continue;
    const std::uintptr_t last = (request.address[lane] + request.bytes[lane] - 1) / kSectorBytes;
    for (std::uintptr_t sector = request.address[lane] / kSectorBytes; sector <= last; ++sector) {
      if (count < touched.size()) touched[count++] = sector;
    }
  }
  std::sort(touched.begin(), touched.begin() + count);
  count = std::size_t(std::unique(touched.begin(), touched.begin() + count) - touched.begin());
  Traffic& sum = counter().sum;
  if (request.space == Space::kStore) {
    ++sum.store_requests;
    sum.store_sectors += count;
    return;
  }
  ++sum.load_requests;
  sum.load_sectors += count;
  counter().sectors.insert(touched.begin(), touched.begin() + count);
}

// Lanes that want different words of one bank wait for each other; the same word is one access.
// Accesses of 8 and 16 bytes are served half-warp and quarter-warp at a time.
void fold_shared(const Request& request) {
  unsigned widest = 1;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if (request.lanes >> lane & 1) widest = std::max<unsigned>(widest, request.bytes[lane]);
  }
  const unsigned group = widest >= 16 ? kLanes / 4 : widest >= 8 ? kLanes / 2 : kLanes;
  Traffic& sum = counter().sum;
  for (unsigned first = 0; first < kLanes; first += group) {
    std::array<std::vector<std::uintptr_t>, kBanks> words;
    std::size_t deepest = 0;
    for (unsigned lane = first; lane < first + group; ++lane) {
      if ((request.lanes >> lane & 1) == 0) continue;
      const std::uintptr_t last = (request.address[lane] + request.bytes[lane] - 1) / kBankBytes;
      for (std::uintptr_t word = request.address[lane] / kBankBytes; word <= last; ++word) {
        auto& bank = words[word % kBanks];
        if (std::find(bank.begin(), bank.end(), word) == bank.end()) bank.push_back(word);
        deepest = std::max(deepest, bank.size());
      }
    }
    if (deepest == 0) continue;
    ++sum.shared_requests;
    sum.shared_wavefronts += deepest;
  }
}

void fold(const Request& request) {
  if (request.space == Space::kShared) {
    fold_shared(request);
  } else {
    fold_global(request);
  }
}

void touch_shared(std::uintptr_t address, std::size_t bytes, Access kind) {
  for (auto& [begin, written] : counter().written) {
    if (address < begin || address + bytes > begin + written.size()) continue;
    bool all = true;
    for (std::size_t byte = address - begin; byte < address - begin + bytes; ++byte) {
      all = all && written[byte];
      if (kind != Access::kLoad) written[byte] = true;
    }
    if (kind != Access::kStore && !all) ++counter().sum.uninitialised_shared_loads;
    return;
  }
}

}  // namespace

void buffer_created(const void* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  counter().buffers[begin] = Buffer{begin, bytes, 0, 0};
}

void buffer_released(const void* address) {
  auto found = counter().buffers.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == counter().buffers.end()) return;
  if (found->second.load_bytes + found->second.store_bytes != 0) {
    counter().released.push_back(found->second);
  }
  counter().buffers.erase(found);
}

void shared_object_created(const void* address, std::size_t bytes) {
  counter().written[reinterpret_cast<std::uintptr_t>(address)].assign(bytes, false);
}

void access(const void* program_counter, const void* address, std::size_t bytes, Access kind) {
  Place place;
  if (!current_place(place)) return;
  Counter& c = counter();
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const bool shared = begin >= place.shared_begin && begin < place.shared_end;
  Buffer* buffer = shared ? nullptr : buffer_of(begin, bytes);
  if (shared) {
    touch_shared(begin, bytes, kind);
  } else if (buffer == nullptr) {
    return;  // a local variable or a kernel argument
  }
  if (kind == Access::kAtomic) {
    c.sum.atomics += !shared;
    return;
  }
  if (!shared) {
    (kind == Access::kLoad ? c.sum.load_bytes : c.sum.store_bytes) += bytes;
    (kind == Access::kLoad ? buffer->load_bytes : buffer->store_bytes) += bytes;
    if (kind == Access::kLoad && bytes == 16) c.sum.wide_load_bytes += bytes;
  }
  const auto at = reinterpret_cast<std::uintptr_t>(program_counter);
  const std::uint64_t execution = c.executions[{at, place.block << 16 | place.thread, 0}]++;
  const RequestKey key{at, place.block << 16 | place.thread / kLanes, execution};
  Request& request = c.open[key];
  const unsigned lane = place.thread % kLanes;
  request.space = shared ? Space::kShared : kind == Access::kLoad ? Space::kLoad : Space::kStore;
  request.address[lane] = begin;
  request.bytes[lane] = std::uint16_t(bytes);
  request.lanes |= 1u << lane;
  if (request.lanes == 0xffffffffu) {
    fold(request);
    c.open.erase(key);
  }
}

void launch_ended() {
  for (const auto& [key, request] : counter().open) fold(request);  // warps with idle lanes
  counter().open.clear();
  counter().executions.clear();
  counter().written.clear();
}

Traffic take() {
  Counter& c = counter();
  Traffic result = std::move(c.sum);
  result.unique_load_sectors = c.sectors.size();
  result.buffers = std::move(c.released);
  for (auto& [address, buffer] : c.buffers) {
    result.buffers.push_back(buffer);
    buffer.load_bytes = buffer.store_bytes = 0;
  }
  c.sum = {};
  c.released.clear();
  c.sectors.clear();
  return result;
}

}  // namespace hetero_spec::simt::traffic

// ---- what the compiler calls in code built with -fsanitize=thread
// --------------------------------

#define HETERO_SPEC_PC __builtin_return_address(0)
#define HETERO_SPEC_SEE(address, bytes, kind)                              \
  ::hetero_spec::simt::traffic::access(HETERO_SPEC_PC, (address), (bytes), \
                                       ::hetero_spec::simt::traffic::Access::kind)

#define HETERO_SPEC_PLAIN_ACCESS(bytes)                                             \
  void __tsan_read##bytes(void* p) { HETERO_SPEC_SEE(p, bytes, kLoad); }            \
  void __tsan_write##bytes(void* p) { HETERO_SPEC_SEE(p, bytes, kStore); }          \
  void __tsan_volatile_read##bytes(void* p) { HETERO_SPEC_SEE(p, bytes, kLoad); }   \
  void __tsan_volatile_write##bytes(void* p) { HETERO_SPEC_SEE(p, bytes, kStore); } \
  void __tsan_unaligned_read##bytes(void* p) { HETERO_SPEC_SEE(p, bytes, kLoad); }  \
  void __tsan_unaligned_write##bytes(void* p) { HETERO_SPEC_SEE(p, bytes, kStore); }

// The count is of read-modify-writes as the kernel makes them, so only device.h reports atomics;
// these do the work that the compiler left to the sanitizer.
#define HETERO_SPEC_ATOMIC_ACCESS(bits, T)                                                         \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                                         \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile T* p, T value, int) {                                  \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                                \
  T __tsan_atomic##bits##_exchange(volatile T* p, T value, int) {                                  \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                        \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T value, int,      \
                                                    int) {                                         \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST,                \
                                       __ATOMIC_SEQ_CST);                                          \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T value, int, int) { \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST,                \
                                       __ATOMIC_SEQ_CST);                                          \
  }

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read_range(void* p, unsigned long bytes) { HETERO_SPEC_SEE(p, bytes, kLoad); }
void __tsan_write_range(void* p, unsigned long bytes) { HETERO_SPEC_SEE(p, bytes, kStore); }
HETERO_SPEC_PLAIN_ACCESS(1)
HETERO_SPEC_PLAIN_ACCESS(2)
HETERO_SPEC_PLAIN_ACCESS(4)
HETERO_SPEC_PLAIN_ACCESS(8)
HETERO_SPEC_PLAIN_ACCESS(16)
HETERO_SPEC_ATOMIC_ACCESS(8, unsigned char)
HETERO_SPEC_ATOMIC_ACCESS(16, unsigned short)
HETERO_SPEC_ATOMIC_ACCESS(32, unsigned)
HETERO_SPEC_ATOMIC_ACCESS(64, unsigned long)
}
#endif
