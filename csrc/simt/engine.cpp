// SPDX-License-Identifier: Apache-2.0
#include "simt/engine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "simt/fiber.h"
#include "simt/race.h"
#include "simt/traffic.h"

#if HETERO_SPEC_SIMT_ASAN
#include <sanitizer/asan_interface.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace hetero_spec::simt {
namespace {

constexpr unsigned kWarpLanes = 32;
constexpr unsigned kMaxThreads = 1024;

// ---- shared memory
// -------------------------------------------------------------------------------

// One block's shared memory: one object after another, with gaps between that AddressSanitizer
// guards. Filled with 0xff bytes (NaN, -1) before each block, so that nothing survives from the
// last. Nothing here may call the allocator: under ThreadSanitizer it would be seen as kernel
// code's.
class SharedArena {
 public:
  static constexpr std::size_t kBytes = 512 << 10, kGap = 64, kObjects = 64, kTwins = 512;

  SharedArena() : base_(reserve_pages(kBytes + kWords * sizeof(std::uint64_t))) {}

  void reset() {
#if HETERO_SPEC_SIMT_ASAN
    __asan_poison_memory_region(base_, kBytes);
#endif
    used_ = payload_ = objects_count_ = twins_count_ = 0;
  }

  // Null: more than `limit` bytes or too many objects.
  void* get(const void* key, std::size_t bytes, std::size_t alignment, std::size_t limit) {
    for (std::size_t index = 0; index < objects_count_; ++index) {
      if (objects_[index].key == key) return objects_[index].address;
    }
    alignment = std::max<std::size_t>(alignment, 16);
    const std::size_t begin = (used_ + kGap + alignment - 1) / alignment * alignment;
    if (payload_ + bytes > limit || begin + bytes + kGap > kBytes || objects_count_ == kObjects) {
      return nullptr;
    }
    payload_ += bytes;
    used_ = begin + bytes;
    unsigned char* address = base_ + begin;
#if HETERO_SPEC_SIMT_ASAN
    __asan_unpoison_memory_region(address, bytes);
#endif
    volatile unsigned char* fill = address;  // volatile: must not become a call of memset
    for (std::size_t byte = 0; byte < bytes; ++byte) fill[byte] = 0xff;
    traffic::shared_object_created(address, bytes);
    objects_[objects_count_++] = {key, address};
    return address;
  }

  // Addresses by which ThreadSanitizer knows meeting points of this block and nothing else. They
  // are the arena's, not the threads', because a resident slot serves several blocks of a launch.
  void* barrier_meeting() { return word(0); }
  void* warp_meeting(unsigned lowest_thread) { return word(1 + lowest_thread); }
  std::uint64_t* thread_words(unsigned thread) {
    return word(1 + kMaxThreads + race::kThreadWords * thread);
  }
  // Stands for `address` among the threads of this block.
  void* twin(const void* address) {
    for (std::size_t index = 0; index < twins_count_; ++index) {
      if (twins_[index] == address) return word(kFirstTwin + index);
    }
    if (twins_count_ < kTwins) twins_[twins_count_++] = address;
    return word(kFirstTwin + twins_count_ - 1);
  }
  const unsigned char* begin() const { return base_; }
  const unsigned char* end() const { return base_ + kBytes; }

 private:
  static constexpr std::size_t kFirstTwin = 1 + kMaxThreads + race::kThreadWords * kMaxThreads;
  static constexpr std::size_t kWords = kFirstTwin + kTwins;
  std::uint64_t* word(std::size_t index) {
    return reinterpret_cast<std::uint64_t*>(base_ + kBytes) + index;
  }

  struct Object {
    const void* key;
    void* address;
  };
  unsigned char* base_;
  std::size_t used_ = 0, payload_ = 0, objects_count_ = 0, twins_count_ = 0;
  std::array<Object, kObjects> objects_{};
  std::array<const void*, kTwins> twins_{};
};

// ---- threads, warps, blocks
// ----------------------------------------------------------------------

enum class State : std::uint8_t { kReady, kAtBarrier, kAtWarpOperation, kReturned };

struct Block;

struct Thread {
  Fiber fiber;
  race::Memory memory;
  Block* block = nullptr;
  unsigned linear = 0;
  uint3 index{};
  State state = State::kReturned;
  // What it waits for, and what it was given.
  WarpOp op{};
  Vote vote{};
  bool predicate = false;
  unsigned mask = 0, source = 0;
  std::uint64_t value = 0, result = 0;
  Site site;

  unsigned lane() const { return linear % kWarpLanes; }
};

struct Warp {
  unsigned returned = 0;  // lanes that have left the kernel
};

struct Block {
  uint3 index{};
  unsigned live = 0, arrived = 0;
  Site barrier_site;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  SharedArena* shared = nullptr;
  void* dynamic = nullptr;

  Thread* lanes(const Thread& thread) { return &threads[thread.linear / kWarpLanes * kWarpLanes]; }
  unsigned lanes_present(const Thread& thread) const {
    const unsigned first = thread.linear / kWarpLanes * kWarpLanes;
    const unsigned count = std::min(kWarpLanes, unsigned(threads.size()) - first);
    return count == kWarpLanes ? 0xffffffffu : (1u << count) - 1;
  }
};

// Runnable threads, in the order in which they became so.
class ReadyQueue {
 public:
  void reset(std::size_t capacity) {
    ring_.assign(std::bit_ceil(std::max<std::size_t>(capacity, 1)), nullptr);
    head_ = count_ = 0;
  }
  void push(Thread* thread) { at(count_++) = thread; }
  void push_front(Thread* thread) {
    --head_;
    ++count_;
    at(0) = thread;
  }
  std::size_t size() const { return count_; }
  Thread* pop_oldest() {
    Thread* thread = at(0);
    ++head_;
    --count_;
    return thread;
  }
  Thread* pop_newest() { return at(--count_); }
  void bring_forward(std::size_t index) { std::swap(at(index), at(0)); }

 private:
  Thread*& at(std::size_t index) { return ring_[(head_ + index) & (ring_.size() - 1)]; }
  std::vector<Thread*> ring_;
  std::size_t head_ = 0, count_ = 0;
};

struct Engine {
  Options options;
  std::uint64_t random_state = 1, switches = 0, launches = 0;
  std::uint64_t idle_yields = 0, resident_threads = 0;
  ReadyQueue ready;
  Thread* current = nullptr;
  const std::function<void()>* body = nullptr;
  std::size_t dynamic_bytes = 0;
  std::vector<std::unique_ptr<SharedArena>> arenas;
  bool running = false;
  char failure[1024] = {};
};
Engine g_engine;

std::uint64_t next_random() {  // splitmix64
  std::uint64_t z = (g_engine.random_state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

void make_ready(Thread& thread) {
  thread.state = State::kReady;
  g_engine.ready.push(&thread);
}

Thread* next_thread() {
  ReadyQueue& ready = g_engine.ready;
  if (ready.size() == 0) return nullptr;
  if (g_engine.options.order == Order::kReverse) return ready.pop_newest();
  if (g_engine.options.order == Order::kRandom) ready.bring_forward(next_random() % ready.size());
  return ready.pop_oldest();
}

void wait() { leave_fiber(g_engine.current->fiber, false); }

// ---- reports
// -------------------------------------------------------------------------------------

const char* name_of(WarpOp op) {
  switch (op) {
    case WarpOp::kSync:
      return "__syncwarp";
    case WarpOp::kShuffle:
      return "a shuffle";
    case WarpOp::kBallot:
      return "a vote";
    case WarpOp::kMatchAny:
      return "__match_any_sync";
    default:
      return "a warp reduction";
  }
}

std::string situation(const Thread& thread) {
  char text[512];
  switch (thread.state) {
    case State::kReturned:
      return "has returned";
    case State::kReady:
      return "can go on";
    case State::kAtBarrier:
      std::snprintf(text, sizeof text, "waits at __syncthreads, %s:%u", thread.site.file_name(),
                    unsigned(thread.site.line()));
      return text;
    default:
      std::snprintf(text, sizeof text, "waits at %s with mask %08x, %s:%u", name_of(thread.op),
                    thread.mask, thread.site.file_name(), unsigned(thread.site.line()));
      return text;
  }
}

std::string place_of(const Thread& thread) {
  char text[128];
  const uint3 block = thread.block->index;
  std::snprintf(text, sizeof text, "block (%u,%u,%u) thread %u (warp %u, lane %u)", block.x,
                block.y, block.z, thread.linear, thread.linear / kWarpLanes, thread.lane());
  return text;
}

// One line for each run of threads in one situation; of all threads, or only of those that wait.
std::string describe(const Block& block, bool all) {
  std::string report, last;
  for (const Thread& thread : block.threads) {
    if (!all && (thread.state == State::kReady || thread.state == State::kReturned)) continue;
    std::string now = situation(thread);
    if (now != last) report += "\n  from " + place_of(thread) + ": " + now;
    last = std::move(now);
  }
  return report;
}

bool same_site(const Site& a, const Site& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

// ---- meeting points
// ------------------------------------------------------------------------------

void complete_barrier(Block& block) {
  unsigned count = 0, waiting = 0;
  for (const Thread& thread : block.threads) {
    if (thread.state != State::kAtBarrier) continue;
    ++waiting;
    count += thread.predicate;
  }
  if (race::kEnabled) {
    void* here = race::current_fiber();
    void* meeting = block.shared->barrier_meeting();
    for (Thread& thread : block.threads) {
      if (thread.state == State::kAtBarrier) race::arrive(thread.fiber.race_fiber, meeting);
    }
    for (Thread& thread : block.threads) {
      if (thread.state == State::kAtBarrier) race::depart(thread.fiber.race_fiber, meeting);
    }
    race::come_back(here);
  }
  block.arrived = 0;
  g_engine.idle_yields = 0;
  for (Thread& thread : block.threads) {
    if (thread.state != State::kAtBarrier) continue;
    thread.result = thread.vote == Vote::kAnd  ? count == waiting
                    : thread.vote == Vote::kOr ? count > 0
                                               : count;
    make_ready(thread);
  }
}

template <class F>
void for_each_lane(unsigned mask, F&& visit) {
  for (; mask != 0; mask &= mask - 1) visit(unsigned(std::countr_zero(mask)));
}

std::uint64_t combine(WarpOp op, std::uint64_t a, std::uint64_t b) {
  switch (op) {
    case WarpOp::kAdd:
      return a + b;
    case WarpOp::kMin:
      return std::min(a, b);
    case WarpOp::kMax:
      return std::max(a, b);
    case WarpOp::kSignedMin:
      return std::uint32_t(std::min(std::int32_t(a), std::int32_t(b)));
    case WarpOp::kSignedMax:
      return std::uint32_t(std::max(std::int32_t(a), std::int32_t(b)));
    case WarpOp::kAnd:
      return a & b;
    case WarpOp::kOr:
      return a | b;
    default:
      return a ^ b;
  }
}

void complete_warp_operation(Thread* lanes, unsigned mask, WarpOp op, void* meeting) {
  g_engine.idle_yields = 0;
  switch (op) {
    case WarpOp::kSync:
      if (race::kEnabled) {
        void* here = race::current_fiber();
        for_each_lane(mask, [&](unsigned l) { race::arrive(lanes[l].fiber.race_fiber, meeting); });
        for_each_lane(mask, [&](unsigned l) { race::depart(lanes[l].fiber.race_fiber, meeting); });
        race::come_back(here);
      }
      break;
    case WarpOp::kShuffle:  // reading a lane that takes no part is undefined on the device: NaN
                            // here
      for_each_lane(mask, [&](unsigned l) {
        const unsigned source = lanes[l].source;
        lanes[l].result = (mask >> source & 1) ? lanes[source].value : 0x7ff87fff7fff7fffull;
      });
      break;
    case WarpOp::kBallot: {
      std::uint64_t votes = 0;
      for_each_lane(mask, [&](unsigned l) { votes |= lanes[l].value << l; });
      for_each_lane(mask, [&](unsigned l) { lanes[l].result = votes; });
      break;
    }
    case WarpOp::kMatchAny:
      for_each_lane(mask, [&](unsigned l) {
        lanes[l].result = 0;
        for_each_lane(mask, [&](unsigned other) {
          if (lanes[other].value == lanes[l].value) lanes[l].result |= 1u << other;
        });
      });
      break;
    default: {
      const unsigned first = unsigned(std::countr_zero(mask));
      std::uint64_t sum = lanes[first].value;
      for_each_lane(mask & (mask - 1), [&](unsigned l) { sum = combine(op, sum, lanes[l].value); });
      for_each_lane(mask, [&](unsigned l) { lanes[l].result = sum; });
    }
  }
  for_each_lane(mask, [&](unsigned l) { make_ready(lanes[l]); });
}

// ---- the life of a thread and of a block
// -----------------------------------------------------------

void thread_entry() {
  fiber_started();
  Thread& thread = *g_engine.current;
  race::begin_thread(thread.memory, thread.fiber.race_fiber,
                     thread.block->shared->thread_words(thread.linear));
  (*g_engine.body)();
  race::end_thread();
  Block& block = *thread.block;
  thread.state = State::kReturned;
  block.warps[thread.linear / kWarpLanes].returned |= 1u << thread.lane();
  g_engine.idle_yields = 0;
  // As on the device, a barrier waits only for threads that have not returned.
  if (--block.live != 0 && block.arrived == block.live) complete_barrier(block);
  leave_fiber(thread.fiber, true);
  std::abort();
}

struct Grid {
  dim3 grid, block;
  std::vector<unsigned> order;  // blocks in the order in which they start
  std::size_t started = 0;
  std::vector<std::unique_ptr<Block>> resident;
};

void open_block(Grid& grid, std::size_t slot) {
  Block& block = *grid.resident[slot];
  const unsigned linear = grid.order[grid.started];
  const unsigned threads = grid.block.x * grid.block.y * grid.block.z;
  block.index = {linear % grid.grid.x, linear / grid.grid.x % grid.grid.y,
                 linear / grid.grid.x / grid.grid.y};
  block.live = threads;
  block.arrived = 0;
  block.threads.resize(threads);
  block.warps.assign((threads + kWarpLanes - 1) / kWarpLanes, Warp{});
  // ThreadSanitizer knows memory by its address: there each block of a launch has its own arena.
  block.shared = g_engine.arenas[race::kEnabled ? grid.started : slot].get();
  block.shared->reset();
  block.dynamic = nullptr;
  if (g_engine.dynamic_bytes != 0) {
    block.dynamic = block.shared->get(&g_engine.dynamic_bytes, g_engine.dynamic_bytes, 16,
                                      g_engine.options.shared_limit);
  }
  ++grid.started;
  for (unsigned linear_thread = 0; linear_thread < threads; ++linear_thread) {
    Thread& thread = block.threads[linear_thread];
    thread.block = &block;
    thread.linear = linear_thread;
    thread.index = {linear_thread % grid.block.x, linear_thread / grid.block.x % grid.block.y,
                    linear_thread / grid.block.x / grid.block.y};
    thread.fiber.race_fiber = race::take_fiber();
    prepare_fiber(thread.fiber, &thread_entry, linear_thread);
    make_ready(thread);
  }
}

// Ends what a launch began, also when it is left by an exception.
struct LaunchScope {
  LaunchScope() { g_engine.running = true; }
  ~LaunchScope() {
    g_engine.running = false;
    g_engine.current = nullptr;
  }
};

std::string run_blocks(Grid& grid) {
  while (Thread* thread = next_thread()) {
    g_engine.current = thread;
    ++g_engine.switches;
    threadIdx = thread->index;
    blockIdx = thread->block->index;
    enter_fiber(thread->fiber);
    g_engine.current = nullptr;
    if (g_engine.failure[0] != 0) break;
    if (thread->state != State::kReturned) continue;
    retire_fiber(thread->fiber, !race::kEnabled);
    if (thread->block->live != 0 || grid.started == grid.order.size()) continue;
    for (std::size_t slot = 0; slot < grid.resident.size(); ++slot) {
      if (grid.resident[slot].get() == thread->block) open_block(grid, slot);
    }
  }
  bool complete = true;  // before anything is read that a CUDA thread may have written
  for (const auto& block : grid.resident) {
    for (Thread& thread : block->threads) {
      if (thread.state == State::kReturned) continue;
      race::abandon_thread(thread.fiber.race_fiber);
      complete = false;
    }
  }
  race::end_launch(!complete);
  std::string failure = g_engine.failure;
  const bool deadlock = failure.empty();
  for (const auto& block : grid.resident) {
    if (failure.empty() && block->live != 0) {
      failure = "deadlock: no thread can go on, first seen in block (" +
                std::to_string(block->index.x) + "," + std::to_string(block->index.y) + "," +
                std::to_string(block->index.z) + ")";
    }
    if (block->live != 0) failure += describe(*block, deadlock);
    for (Thread& thread : block->threads) {
      retire_fiber(thread.fiber, true);
    }
  }
  return failure;
}

}  // namespace

const Options& options() { return g_engine.options; }
void configure(const Options& options) {
  g_engine.options = options;
  g_engine.random_state = options.seed;
}
std::uint64_t switch_count() { return g_engine.switches; }
std::uint64_t launch_count() { return g_engine.launches; }
unsigned lane_index() { return g_engine.current->lane(); }

void fail(const char* what, Site site) {
  if (g_engine.current == nullptr) throw Error(what);
  std::snprintf(g_engine.failure, sizeof g_engine.failure, "%s, %s, %s:%u", what,
                place_of(*g_engine.current).c_str(), site.file_name(), unsigned(site.line()));
  wait();  // never resumed
  std::abort();
}

unsigned block_barrier(bool predicate, Vote vote, Site site) {
  Thread& thread = *g_engine.current;
  Block& block = *thread.block;
  thread.predicate = predicate;
  thread.vote = vote;
  thread.site = site;
  if (block.arrived == 0) {
    block.barrier_site = site;
  } else if (!same_site(block.barrier_site, site)) {
    fail("threads of one block meet at different __syncthreads", site);
  }
  thread.state = State::kAtBarrier;
  if (++block.arrived == block.live) complete_barrier(block);
  wait();
  return unsigned(thread.result);
}

std::uint64_t warp_operation(WarpOp op, unsigned mask, std::uint64_t value, unsigned source,
                             Site site) {
  Thread& thread = *g_engine.current;
  Block& block = *thread.block;
  const Warp& warp = block.warps[thread.linear / kWarpLanes];
  mask &= block.lanes_present(thread);  // a partial last warp: the lanes that never were
  if ((mask >> thread.lane() & 1) == 0) {
    fail("a warp operation's mask leaves out the calling lane", site);
  }
  if ((mask & warp.returned) != 0) {
    fail("a warp operation's mask names a lane that has returned", site);
  }
  thread.op = op;
  thread.mask = mask;
  thread.value = value;
  thread.source = source;
  thread.site = site;
  thread.state = State::kAtWarpOperation;
  Thread* lanes = block.lanes(thread);
  unsigned arrived = 0;
  for_each_lane(mask, [&](unsigned lane) {
    const Thread& other = lanes[lane];
    const bool meets =
        other.state == State::kAtWarpOperation && other.mask == mask && other.op == op;
    arrived |= unsigned(meets) << lane;
  });
  if (arrived == mask) {
    complete_warp_operation(lanes, mask, op,
                            block.shared->warp_meeting(lanes[std::countr_zero(mask)].linear));
  }
  wait();
  return thread.result;
}

void yield_thread(Site site) {
  Thread& thread = *g_engine.current;
  if (++g_engine.idle_yields > g_engine.options.spin_limit * g_engine.resident_threads) {
    fail(
        "threads spin and none makes progress (blocks that wait for each other must be resident "
        "together)",
        site);
  }
  thread.state = State::kReady;
  if (g_engine.options.order == Order::kReverse) {
    g_engine.ready.push_front(
        &thread);  // the newest goes first: at the back it would be next again
  } else {
    g_engine.ready.push(&thread);
  }
  wait();
}

void fence(FenceScope scope, Site site) {
  if (g_engine.options.preempt) yield_thread(site);
  race::fence(g_engine.current->memory,
              scope == FenceScope::kBlock ? race::Scope::kBlock : race::Scope::kDevice);
}

void before_atomic(const void* address, std::size_t bytes, Site site) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) fail("misaligned atomic", site);
  if (g_engine.options.preempt) yield_thread(site);
}

void after_atomic(const void* address, bool changed, Site site) {
  Thread& thread = *g_engine.current;
  if (changed) g_engine.idle_yields = 0;
  if (race::kEnabled) {
    void* twin = thread.block->shared->twin(address);
    race::atomic_read(thread.memory, address, twin);
    race::atomic_write(thread.memory, address, twin);
  }
  if (g_engine.options.preempt) yield_thread(site);
}

void* shared_static(const void* key, std::size_t bytes, std::size_t alignment, Site site) {
  void* address =
      g_engine.current->block->shared->get(key, bytes, alignment, g_engine.options.shared_limit);
  if (address == nullptr) fail("shared memory is used up", site);
  return address;
}

void* shared_dynamic(Site site) {
  void* address = g_engine.current->block->dynamic;
  if (address == nullptr) fail("the launch gave no dynamic shared memory", site);
  return address;
}

bool current_place(Place& place) {
  const Thread* thread = g_engine.current;
  if (thread == nullptr) return false;
  const uint3 index = thread->block->index;
  place.block = index.x + std::uint64_t(gridDim.x) * (index.y + std::uint64_t(gridDim.y) * index.z);
  place.thread = thread->linear;
  place.shared_begin = reinterpret_cast<std::uintptr_t>(thread->block->shared->begin());
  place.shared_end = reinterpret_cast<std::uintptr_t>(thread->block->shared->end());
  return true;
}

void run_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
              const std::function<void()>& body) {
  const std::uint64_t threads = std::uint64_t(block.x) * block.y * block.z;
  const std::uint64_t blocks = std::uint64_t(grid.x) * grid.y * grid.z;
  if (threads == 0 || threads > kMaxThreads || block.z > 64 || blocks == 0 ||
      blocks > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 ||
      dynamic_shared_bytes > g_engine.options.shared_limit) {
    throw Error("invalid launch configuration: grid (" + std::to_string(grid.x) + "," +
                std::to_string(grid.y) + "," + std::to_string(grid.z) + "), " +
                std::to_string(threads) + " threads a block, " +
                std::to_string(dynamic_shared_bytes) + " bytes of dynamic shared memory");
  }
  if (g_engine.running) throw Error("a kernel cannot launch a kernel here");
  if (race::kEnabled && blocks * threads > race::kMostThreads) {
    throw Error("the race build runs at most " + std::to_string(race::kMostThreads) +
                " threads a launch, got " + std::to_string(blocks * threads));
  }
  LaunchScope scope;
  ++g_engine.launches;
  g_engine.body = &body;
  g_engine.dynamic_bytes = dynamic_shared_bytes;
  g_engine.failure[0] = 0;
  g_engine.idle_yields = 0;
  blockDim = block;
  gridDim = grid;

  Grid state{grid, block, std::vector<unsigned>(blocks), 0, {}};
  std::iota(state.order.begin(), state.order.end(), 0u);
  if (g_engine.options.order == Order::kReverse) {
    std::reverse(state.order.begin(), state.order.end());
  } else if (g_engine.options.order == Order::kRandom) {
    for (std::size_t left = blocks; left > 1; --left) {
      std::swap(state.order[left - 1], state.order[next_random() % left]);
    }
  }
  const std::size_t resident =
      std::min<std::size_t>(std::max(1u, g_engine.options.resident_blocks), blocks);
  while (g_engine.arenas.size() < (race::kEnabled ? blocks : resident)) {
    g_engine.arenas.push_back(std::make_unique<SharedArena>());
  }
  g_engine.resident_threads = resident * threads;
  g_engine.ready.reset(resident * threads);
  DeviceMemoryAccess access;
  race::begin_launch();
  for (std::size_t slot = 0; slot < resident; ++slot) {
    state.resident.push_back(std::make_unique<Block>());
    open_block(state, slot);
  }
  const std::string failure = run_blocks(state);
  recycle_stacks();
  traffic::launch_ended();
  if (!failure.empty()) throw Error(failure);
}

}  // namespace hetero_spec::simt
