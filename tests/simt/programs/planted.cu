// SPDX-License-Identifier: Apache-2.0
// Faults planted on purpose: tests of the test bench. Each must be caught for ever, in the way that
// test_planted_faults.py names. A line marked `here: <case>` is where the report must point.
#include "bench.h"

namespace gpu = hetero_spec::gpu;
using simt_bench::DeviceArray;

namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

// ---- a sum over a row by several blocks, correct but for one fault
// ---------------------------------

enum class Fault {
  kNone,
  kPackTooFar,        // one 16-byte pack beyond the row
  kNoBarrier,         // partial sums of warps are read before they are all written
  kNoFenceBefore,     // the partial sum may arrive after the ticket
  kNoFenceAfter,      // other blocks' partial sums may be read before the ticket
  kFenceTooEarly,     // ... and here the fence precedes what it should publish
  kFenceOfBlockOnly,  // ordered for the block, not for the device
};

template <Fault fault>
__global__ void row_sum_kernel(const float* row, int packs_a_block, float* partial,
                               unsigned* ticket, float* out) {
  struct Scratch {
    float warp[2];
    bool last;
  };
  Scratch& scratch = gpu::shared<Scratch>();
  const float4* packs = reinterpret_cast<const float4*>(row) + int(blockIdx.x) * packs_a_block;
  const int limit = packs_a_block + (fault == Fault::kPackTooFar ? 1 : 0);
  float sum = 0;
  for (int pack = int(threadIdx.x); pack < limit; pack += int(blockDim.x)) {
    const float4 four = __ldcs(packs + pack);  // here: pack_too_far
    sum += four.x + four.y + four.z + four.w;
  }
  for (int bit = 16; bit != 0; bit /= 2) sum += __shfl_xor_sync(kAllLanes, sum, bit);
  if (threadIdx.x % 32 == 0) scratch.warp[threadIdx.x / 32] = sum;  // here: no_barrier
  if (fault != Fault::kNoBarrier) __syncthreads();
  if (threadIdx.x == 0) {
    if (fault == Fault::kFenceTooEarly) __threadfence();
    const float* warp = scratch.warp;
    partial[blockIdx.x] = warp[0] + warp[1];  // here: unpublished
    if (fault == Fault::kFenceOfBlockOnly) {
      __threadfence_block();
    } else if (fault != Fault::kNoFenceBefore && fault != Fault::kFenceTooEarly) {
      __threadfence();
    }
    scratch.last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    if (fault != Fault::kNoFenceAfter) __threadfence();
  }
  __syncthreads();
  if (!scratch.last || threadIdx.x != 0) return;
  float total = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) total += partial[block];
  *out = total;
}

template <Fault fault>
void run_row_sum() {
  constexpr int kBlocks = 3, kPacks = 100, kSize = kBlocks * kPacks * 4;
  DeviceArray<float> row(kSize), partial(kBlocks), out(1);
  DeviceArray<unsigned> ticket(1);
  float expected = 0;
  for (int index = 0; index < kSize; ++index) {
    row.set(unsigned(index), float(index % 17 + 1));
    expected += float(index % 17 + 1);
  }
  ticket.fill(0);
  gpu::launch(kBlocks, 64, 0, nullptr, row_sum_kernel<fault>, row.get(), kPacks, partial.get(),
              ticket.get(), out.get());
  EXPECT(out[0] == expected);
}
CASE(row_sum_correct) { run_row_sum<Fault::kNone>(); }
CASE(pack_too_far) { run_row_sum<Fault::kPackTooFar>(); }
CASE(no_barrier) { run_row_sum<Fault::kNoBarrier>(); }
CASE(no_fence_before_ticket) { run_row_sum<Fault::kNoFenceBefore>(); }
CASE(no_fence_after_ticket) { run_row_sum<Fault::kNoFenceAfter>(); }
CASE(fence_before_write) { run_row_sum<Fault::kFenceTooEarly>(); }
CASE(fence_of_block_only) { run_row_sum<Fault::kFenceOfBlockOnly>(); }

// ---- order inside a warp
// ---------------------------------------------------------------------------

enum class Between { kSyncwarp, kNothing, kShuffle };

template <Between between>
__global__ void warp_exchange_kernel(int* out) {
  struct Scratch {
    int value[32];
  };
  Scratch& scratch = gpu::shared<Scratch>();
  scratch.value[threadIdx.x] = int(threadIdx.x);  // here: warp_write
  if (between == Between::kSyncwarp) __syncwarp();
  int extra = 0;
  if (between == Between::kShuffle) extra = __shfl_xor_sync(kAllLanes, 0, 1);
  out[threadIdx.x] = scratch.value[threadIdx.x ^ 1] + extra;
}
template <Between between>
void run_warp_exchange() {
  DeviceArray<int> out(32);
  gpu::launch(1, 32, 0, nullptr, warp_exchange_kernel<between>, out.get());
  for (int lane = 0; lane < 32; ++lane) EXPECT(out[unsigned(lane)] == (lane ^ 1));
}
CASE(warp_exchange_correct) { run_warp_exchange<Between::kSyncwarp>(); }
CASE(no_syncwarp) { run_warp_exchange<Between::kNothing>(); }
CASE(shuffle_as_fence) { run_warp_exchange<Between::kShuffle>(); }

__global__ void syncwarp_once_kernel(int* out) {  // the second write races with slow readers
  struct Scratch {
    int value[32];
  };
  Scratch& scratch = gpu::shared<Scratch>();
  scratch.value[threadIdx.x] = 1;
  __syncwarp();
  const int seen = scratch.value[threadIdx.x ^ 1];
  scratch.value[threadIdx.x] = 2;  // here: no_syncwarp_after_read
  __syncwarp();
  out[threadIdx.x] = seen + scratch.value[threadIdx.x ^ 1];
}
CASE(no_syncwarp_after_read) {
  DeviceArray<int> out(32);
  gpu::launch(1, 32, 0, nullptr, syncwarp_once_kernel, out.get());
  for (unsigned lane = 0; lane < 32; ++lane) EXPECT(out[lane] == 3);
}

__global__ void half_barrier_kernel(int* out) {  // two half-warps: neither waits for the other
  struct Scratch {
    int value[32];
  };
  Scratch& scratch = gpu::shared<Scratch>();
  scratch.value[threadIdx.x] = 1;
  __syncwarp(threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u);
  out[threadIdx.x] = scratch.value[threadIdx.x ^ 16];  // here: half_warp_barrier
}
CASE(half_warp_barrier) {
  DeviceArray<int> out(32);
  gpu::launch(1, 32, 0, nullptr, half_barrier_kernel, out.get());
}

// ---- order between blocks
// --------------------------------------------------------------------------

__global__ void blocks_race_kernel(int* out) {
  if (threadIdx.x == 0) *out = int(blockIdx.x);  // here: blocks_race
}
CASE(blocks_race) {
  DeviceArray<int> out(1);
  gpu::launch(3, 32, 0, nullptr, blocks_race_kernel, out.get());
}

__global__ void relaxed_flag_kernel(int* data, int* flag,
                                    int* out) {  // an atomic alone orders nothing
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    *data = 7;  // here: atomic_as_fence
    atomicExch(flag, 1);
  } else {
    while (atomicAdd(flag, 0) == 0) __nanosleep(20);
    *out = *data;
  }
}
CASE(atomic_as_fence) {
  hetero_spec::simt::Options options = hetero_spec::simt::options();
  options.resident_blocks = 2;
  hetero_spec::simt::configure(options);
  DeviceArray<int> data(1), flag(1), out(1);
  flag.fill(0);
  gpu::launch(2, 32, 0, nullptr, relaxed_flag_kernel, data.get(), flag.get(), out.get());
}

__global__ void late_write_kernel(int* data, int* flag, int* out) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    __threadfence();
    *data = 7;  // here: write_after_fence
    atomicExch(flag, 1);
  } else {
    while (atomicAdd(flag, 0) == 0) __nanosleep(20);
    __threadfence();
    *out = *data;
  }
}
CASE(write_after_fence) {
  hetero_spec::simt::Options options = hetero_spec::simt::options();
  options.resident_blocks = 2;
  hetero_spec::simt::configure(options);
  DeviceArray<int> data(1), flag(1), out(1);
  flag.fill(0);
  gpu::launch(2, 32, 0, nullptr, late_write_kernel, data.get(), flag.get(), out.get());
}

// ---- shared memory
// ---------------------------------------------------------------------------------

struct ThirtyTwo {
  float value[32];
};
__global__ void shared_overflow_kernel(float* out, int shift) {
  float* value = gpu::shared<ThirtyTwo>().value;
  value[int(threadIdx.x) + shift] = 1;  // here: shared_overflow
  __syncthreads();
  out[threadIdx.x] = value[threadIdx.x];
}
CASE(shared_overflow) {
  DeviceArray<float> out(32);
  gpu::launch(1, 32, 0, nullptr, shared_overflow_kernel, out.get(), 1);
}
__global__ void dynamic_overflow_kernel(float* out, int stride) {
  float* value = gpu::shared_dynamic<float>();
  value[int(threadIdx.x) * stride] = 1;  // here: dynamic_overflow
  __syncthreads();
  out[threadIdx.x] = value[threadIdx.x];
}
CASE(dynamic_overflow) {
  DeviceArray<float> out(32);
  gpu::launch(1, 32, 32 * sizeof(float), nullptr, dynamic_overflow_kernel, out.get(), 2);
}
__global__ void unwritten_shared_kernel(float* out, bool write_first) {
  float* value = gpu::shared<ThirtyTwo>().value;
  if (write_first) value[threadIdx.x] = 1;
  out[threadIdx.x] = value[threadIdx.x];
}
CASE(unwritten_shared) {  // a first launch writes it, and nothing of that must survive
  DeviceArray<float> out(32);
  gpu::launch(1, 32, 0, nullptr, unwritten_shared_kernel, out.get(), true);
  gpu::launch(1, 32, 0, nullptr, unwritten_shared_kernel, out.get(), false);
  for (unsigned lane = 0; lane < 32; ++lane) EXPECT(out[lane] == 1);
}
__global__ void shared_too_large_kernel(float* out) {
  struct Large {
    float value[12289];
  };
  Large& large = gpu::shared<Large>();
  large.value[threadIdx.x] = 1;
  out[threadIdx.x] = large.value[threadIdx.x];
}
CASE(shared_too_large) {
  DeviceArray<float> out(32);
  gpu::launch(1, 32, 0, nullptr, shared_too_large_kernel, out.get());
}
__global__ void no_dynamic_kernel(float* out) { *out = *gpu::shared_dynamic<float>(); }
CASE(no_dynamic_shared) {
  DeviceArray<float> out(1);
  gpu::launch(1, 1, 0, nullptr, no_dynamic_kernel, out.get());
}

// ---- meeting points
// --------------------------------------------------------------------------------

__global__ void different_barriers_kernel(int* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();  // here: different_barriers
  }
  out[threadIdx.x] = 1;
}
CASE(different_barriers) {
  DeviceArray<int> out(64);
  gpu::launch(1, 64, 0, nullptr, different_barriers_kernel, out.get());
}
__global__ void barrier_against_warp_kernel(int* out) {
  if (threadIdx.x == 5) {
    __syncthreads();
  } else {
    __syncwarp();  // here: barrier_against_warp
  }
  out[threadIdx.x] = 1;
}
CASE(barrier_against_warp) {
  DeviceArray<int> out(32);
  gpu::launch(1, 32, 0, nullptr, barrier_against_warp_kernel, out.get());
}
__global__ void missing_lanes_kernel(int* out) {
  int value = int(threadIdx.x);
  if (threadIdx.x < 16) value = __shfl_xor_sync(kAllLanes, value, 1);  // here: missing_lanes
  __syncthreads();
  out[threadIdx.x] = value;
}
CASE(missing_lanes) {
  DeviceArray<int> out(32);
  gpu::launch(1, 32, 0, nullptr, missing_lanes_kernel, out.get());
}
__global__ void mask_without_caller_kernel(int* out) {
  int value = int(threadIdx.x);
  if (threadIdx.x >= 16)
    value = __shfl_xor_sync(0x0000ffffu, value, 1);  // here: mask_without_caller
  out[threadIdx.x] = value;
}
CASE(mask_without_caller) {
  DeviceArray<int> out(32);
  gpu::launch(1, 32, 0, nullptr, mask_without_caller_kernel, out.get());
}
__global__ void returned_lane_kernel(int* out) {
  if (threadIdx.x >= 20) return;
  out[threadIdx.x] = __shfl_down_sync(kAllLanes, int(threadIdx.x), 1);  // here: returned_lane
}
CASE(returned_lane) {
  DeviceArray<int> out(32);
  gpu::launch(1, 32, 0, nullptr, returned_lane_kernel, out.get());
}
__global__ void overlapping_masks_kernel(int* out) {
  const unsigned mask = threadIdx.x < 16 ? 0x0001ffffu : 0xffff0000u;
  out[threadIdx.x] = __reduce_add_sync(mask, 1);  // here: overlapping_masks
}
CASE(overlapping_masks) {
  DeviceArray<int> out(32);
  gpu::launch(1, 32, 0, nullptr, overlapping_masks_kernel, out.get());
}
__global__ void lane_outside_mask_kernel(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 20);
}
CASE(lane_outside_mask) {  // undefined on the device: NaN here
  DeviceArray<float> out(16);
  gpu::launch(1, 32, 0, nullptr, lane_outside_mask_kernel, out.get());
  EXPECT(out[3] == 1.0f);
}
__global__ void bad_width_kernel(int* out) {
  out[threadIdx.x] = __shfl_xor_sync(kAllLanes, 1, 1, 12);  // here: bad_width
}
CASE(bad_width) {
  DeviceArray<int> out(32);
  gpu::launch(1, 32, 0, nullptr, bad_width_kernel, out.get());
}

// ---- global memory
// ---------------------------------------------------------------------------------

__global__ void misaligned_kernel(const float* in, float* out) {
  const float4 four = __ldg(reinterpret_cast<const float4*>(in + 1));  // here: misaligned_load
  out[threadIdx.x] = four.x;
}
CASE(misaligned_load) {
  DeviceArray<float> in(64), out(32);
  gpu::launch(1, 32, 0, nullptr, misaligned_kernel, in.get(), out.get());
}
__global__ void misaligned_atomic_kernel(unsigned char* bytes) {
  atomicAdd(reinterpret_cast<unsigned*>(bytes + 2), 1u);  // here: misaligned_atomic
}
CASE(misaligned_atomic) {
  DeviceArray<unsigned char> bytes(8);
  gpu::launch(1, 1, 0, nullptr, misaligned_atomic_kernel, bytes.get());
}
__global__ void write_kernel(float* out, int at) {
  out[at] = 1;  // here: out_of_bounds
}
CASE(store_past_end) {
  DeviceArray<float> out(33);
  gpu::launch(1, 1, 0, nullptr, write_kernel, out.get(), 33);
}
CASE(store_before_begin) {
  DeviceArray<float> out(33);
  gpu::launch(1, 1, 0, nullptr, write_kernel, out.get(), -1);
}
CASE(use_after_free) {
  float* out;
  cudaMalloc(reinterpret_cast<void**>(&out), 64);
  cudaFree(out);
  gpu::launch(1, 1, 0, nullptr, write_kernel, out, 0);
}
CASE(host_reads_device) {  // only copies may touch device memory from the host
  DeviceArray<float> out(32);
  out.fill(1);
  EXPECT(out.get()[3] == 1);  // here: host_reads_device
}
CASE(unwritten_global) {  // fresh device memory is NaN
  DeviceArray<float> out(32);
  EXPECT(out[3] == 0);
}
__global__ void overflow_kernel(const int* in, int* out) {
  out[0] = in[0] * 65536;  // here: integer_overflow
}
CASE(integer_overflow) {
  DeviceArray<int> in(1), out(1);
  in.fill(40000);
  gpu::launch(1, 1, 0, nullptr, overflow_kernel, in.get(), out.get());
}

// ---- launches
// --------------------------------------------------------------------------------------

CASE(too_many_threads) {
  DeviceArray<float> out(1);
  gpu::launch(1, 1025, 0, nullptr, write_kernel, out.get(), 0);
}
CASE(grid_too_tall) {
  DeviceArray<float> out(1);
  gpu::launch(dim3(1, 65536), 1, 0, nullptr, write_kernel, out.get(), 0);
}
__global__ void read_argument_kernel(const int* argument, int* out) { *out = *argument; }
void launch_with_local(int* out) {
  volatile int local = 41;
  gpu::launch(1, 1, 0, nullptr, read_argument_kernel, const_cast<const int*>(&local), out);
}
CASE(host_pointer_in_kernel) {  // a pointer to the launcher's stack, dead when the stream runs
  hetero_spec::simt::Options options = hetero_spec::simt::options();
  options.deferred_streams = true;
  hetero_spec::simt::configure(options);
  DeviceArray<int> out(1);
  launch_with_local(out.get());
  EXPECT(out[0] == 41);
}

}  // namespace
