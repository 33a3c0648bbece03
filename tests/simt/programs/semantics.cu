// SPDX-License-Identifier: Apache-2.0
// What the SIMT layer must get right: every case is a correct kernel whose outcome CUDA defines.
#include <vector>

#include "bench.h"

namespace gpu = hetero_spec::gpu;
using simt_bench::DeviceArray;

namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

__global__ void indices_kernel(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] = block * 1000 + thread;
}
CASE(indices) {
  DeviceArray<unsigned> out(12 * 30);
  gpu::launch(dim3(2, 3, 2), dim3(5, 3, 2), 0, nullptr, indices_kernel, out.get());
  for (unsigned block = 0; block < 12; ++block) {
    for (unsigned thread = 0; thread < 30; ++thread) {
      EXPECT(out[block * 30 + thread] == block * 1000 + thread);
    }
  }
}

__global__ void shuffles_kernel(int* out) {
  const int lane = int(threadIdx.x % 32);
  int* mine = out + threadIdx.x * 8;
  mine[0] = __shfl_sync(kAllLanes, lane * 10, 31 - lane);
  mine[1] = __shfl_xor_sync(kAllLanes, lane, 5);
  mine[2] = __shfl_down_sync(kAllLanes, lane, 3);
  mine[3] = __shfl_up_sync(kAllLanes, lane, 3);
  mine[4] = __shfl_down_sync(kAllLanes, lane, 3, 8);
  mine[5] = __shfl_sync(kAllLanes, lane, 9, 8);
  mine[6] = int(__shfl_xor_sync(kAllLanes, double(lane) + 0.5, 1) * 2);
  mine[7] = __shfl_up_sync(kAllLanes, lane, 2, 4);
}
CASE(shuffles) {
  DeviceArray<int> out(64 * 8);
  gpu::launch(1, 64, 0, nullptr, shuffles_kernel, out.get());
  for (int thread = 0; thread < 64; ++thread) {
    const int lane = thread % 32, at = thread * 8;
    EXPECT(out[at + 0] == (31 - lane) * 10);
    EXPECT(out[at + 1] == (lane ^ 5));
    EXPECT(out[at + 2] == (lane + 3 < 32 ? lane + 3 : lane));
    EXPECT(out[at + 3] == (lane >= 3 ? lane - 3 : lane));
    EXPECT(out[at + 4] == (lane % 8 + 3 < 8 ? lane + 3 : lane));
    EXPECT(out[at + 5] == lane / 8 * 8 + 1);
    EXPECT(out[at + 6] == (lane ^ 1) * 2 + 1);
    EXPECT(out[at + 7] == (lane % 4 >= 2 ? lane - 2 : lane));
  }
}

__global__ void votes_kernel(unsigned* out) {
  const int lane = int(threadIdx.x);
  unsigned* mine = out + lane * 12;
  mine[0] = __ballot_sync(kAllLanes, lane % 3 == 0);
  mine[1] = unsigned(__any_sync(kAllLanes, lane == 7));
  mine[2] = unsigned(__all_sync(kAllLanes, lane != 7));
  mine[3] = __match_any_sync(kAllLanes, lane % 5);
  mine[4] = __reduce_add_sync(kAllLanes, unsigned(lane));
  mine[5] = __reduce_min_sync(kAllLanes, unsigned(lane) + 3);
  mine[6] = __reduce_max_sync(kAllLanes, unsigned(lane) + 3);
  mine[7] = unsigned(__reduce_min_sync(kAllLanes, lane - 16));
  mine[8] = unsigned(__reduce_max_sync(kAllLanes, lane - 40));
  mine[9] = __reduce_and_sync(kAllLanes, ~(1u << lane));
  mine[10] = __reduce_or_sync(kAllLanes, 1u << lane);
  mine[11] = __reduce_xor_sync(kAllLanes, unsigned(lane) | 64u);
}
CASE(votes) {
  DeviceArray<unsigned> out(32 * 12);
  gpu::launch(1, 32, 0, nullptr, votes_kernel, out.get());
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned at = lane * 12;
    unsigned same = 0;
    for (unsigned other = lane % 5; other < 32; other += 5) same |= 1u << other;
    EXPECT(out[at + 0] == 0x49249249u);
    EXPECT(out[at + 1] == 1 && out[at + 2] == 0);
    EXPECT(out[at + 3] == same);
    EXPECT(out[at + 4] == 496 && out[at + 5] == 3 && out[at + 6] == 34);
    EXPECT(int(out[at + 7]) == -16 && int(out[at + 8]) == -9);
    EXPECT(out[at + 9] == 0 && out[at + 10] == kAllLanes && out[at + 11] == 0);
  }
}

__global__ void half_warps_kernel(int* out) {  // the halves exchange apart, then together
  int value = int(threadIdx.x);
  if (threadIdx.x % 32 < 16) {
    for (int bit = 0; bit < 4; ++bit) value += __shfl_xor_sync(0x0000ffffu, value, 1 << bit);
  } else {
    value = __reduce_add_sync(0xffff0000u, value);
    value += int(__ballot_sync(0xffff0000u, 1) >> 16 & 1);
  }
  __syncwarp();
  out[threadIdx.x] = __shfl_sync(kAllLanes, value, 31 - int(threadIdx.x % 32));
}
CASE(half_warps) {
  DeviceArray<int> out(64);
  gpu::launch(1, 64, 0, nullptr, half_warps_kernel, out.get());
  for (int thread = 0; thread < 64; ++thread) {
    const int base = thread / 32 * 32, low = 16 * base + 120, high = 16 * (base + 16) + 120 + 1;
    EXPECT(out[thread] == (thread % 32 < 16 ? high : low));
  }
}

__global__ void partial_warp_kernel(int* out) {  // 40 threads: the last warp has eight lanes
  out[threadIdx.x] = __reduce_add_sync(kAllLanes, 1) + int(__ballot_sync(kAllLanes, 1)) * 100;
}
CASE(partial_warp) {
  DeviceArray<int> out(40);
  gpu::launch(1, 40, 0, nullptr, partial_warp_kernel, out.get());
  EXPECT(out[0] == 32 - 100);
  EXPECT(out[39] == 8 + 0xff * 100);
}

__global__ void barrier_votes_kernel(int* out) {
  const int odd = int(threadIdx.x % 2);
  int* mine = out + threadIdx.x * 4;
  mine[0] = __syncthreads_count(odd);
  mine[1] = __syncthreads_or(threadIdx.x == 50);
  mine[2] = __syncthreads_and(odd);
  mine[3] = __syncthreads_and(threadIdx.x < 96);
}
CASE(barrier_votes) {
  DeviceArray<int> out(96 * 4);
  gpu::launch(1, 96, 0, nullptr, barrier_votes_kernel, out.get());
  for (int thread = 0; thread < 96; ++thread) {
    EXPECT(out[thread * 4] == 48 && out[thread * 4 + 1] == 1);
    EXPECT(out[thread * 4 + 2] == 0 && out[thread * 4 + 3] == 1);
  }
}

__global__ void early_return_kernel(int* out) {  // whole warps leave, the others still meet
  if (threadIdx.x >= 64) return;
  const int count = __syncthreads_count(1);
  out[threadIdx.x] = count;
}
CASE(early_return) {
  DeviceArray<int> out(64);
  gpu::launch(1, 128, 0, nullptr, early_return_kernel, out.get());
  EXPECT(out[0] == 64 && out[63] == 64);
}

__global__ void shared_kernel(float* out) {
  struct First {
    float value[64];
  };
  struct Second {
    float value[64];
  };
  float* dynamic = gpu::shared_dynamic<float>();
  First& first = gpu::shared<First>();
  Second& second = gpu::shared<Second>();
  first.value[threadIdx.x] = float(threadIdx.x);
  second.value[threadIdx.x] = float(blockIdx.x);
  dynamic[threadIdx.x] = 0.25f;
  __syncthreads();
  const unsigned other = 63 - threadIdx.x;
  out[blockIdx.x * 64 + threadIdx.x] =
      first.value[other] + 100 * second.value[other] + dynamic[other];
}
CASE(shared) {  // three objects apart from each other, and one set for each block
  DeviceArray<float> out(5 * 64);
  gpu::launch(5, 64, 64 * sizeof(float), nullptr, shared_kernel, out.get());
  for (int block = 0; block < 5; ++block) {
    for (int thread = 0; thread < 64; ++thread) {
      EXPECT(out[block * 64 + thread] == float(63 - thread) + 100.0f * float(block) + 0.25f);
    }
  }
}

__global__ void warp_shared_kernel(int* out) {  // __syncwarp orders shared memory inside a warp
  struct Scratch {
    int value[96];
  };
  Scratch& scratch = gpu::shared<Scratch>();
  for (int round = 0; round < 3; ++round) {
    scratch.value[threadIdx.x] = int(threadIdx.x) + round;
    __syncwarp();
    out[threadIdx.x] = scratch.value[threadIdx.x ^ 1];
    __syncwarp();
  }
}
CASE(warp_shared) {
  DeviceArray<int> out(96);
  gpu::launch(1, 96, 0, nullptr, warp_shared_kernel, out.get());
  for (int thread = 0; thread < 96; ++thread) EXPECT(out[thread] == (thread ^ 1) + 2);
}

__global__ void atomics_kernel(unsigned* out, float* sum, unsigned long long* wide) {
  atomicAdd(&out[0], 1u);
  atomicMax(&out[1], threadIdx.x + blockIdx.x);
  atomicMin(&out[2], threadIdx.x + blockIdx.x + 5);
  atomicOr(&out[3], 1u << threadIdx.x % 32);
  atomicAnd(&out[4], ~(1u << threadIdx.x % 32));
  atomicInc(&out[5], 6);
  atomicCAS(&out[6], 0u, 77u);
  atomicXor(&out[7], 1u);
  atomicSub(&out[8], 2u);
  atomicAdd(sum, 0.5f);
  atomicAdd(wide, 1ull << 33);
}
CASE(atomics) {
  DeviceArray<unsigned> out(9);
  DeviceArray<float> sum(1);
  DeviceArray<unsigned long long> wide(1);
  out.fill(0);
  out.set(2, 1000);
  out.set(4, kAllLanes);
  sum.fill(0);
  wide.fill(0);
  gpu::launch(3, 64, 0, nullptr, atomics_kernel, out.get(), sum.get(), wide.get());
  EXPECT(out[0] == 192 && out[1] == 65 && out[2] == 5 && out[3] == kAllLanes && out[4] == 0);
  EXPECT(out[5] == 192 % 7 && out[6] == 77 && out[7] == 0 && out[8] == 0u - 384u);
  EXPECT(sum[0] == 96.0f && wide[0] == 192ull << 33);
}

__global__ void last_block_kernel(const int* in, int* partial, unsigned* ticket, int* out) {
  struct Scratch {
    int warp[2];
    bool last;
  };
  Scratch& scratch = gpu::shared<Scratch>();
  const int sum = __reduce_add_sync(kAllLanes, in[blockIdx.x * blockDim.x + threadIdx.x]);
  if (threadIdx.x % 32 == 0) scratch.warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = scratch.warp[0] + scratch.warp[1];
    __threadfence();
    scratch.last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!scratch.last) return;
  if (threadIdx.x < 32) {
    const int total =
        __reduce_add_sync(kAllLanes, threadIdx.x < gridDim.x ? partial[threadIdx.x] : 0);
    if (threadIdx.x == 0) *out = total;
  }
}
CASE(last_block) {
  DeviceArray<int> in(64 * 7), partial(7), out(1);
  DeviceArray<unsigned> ticket(1);
  int expected = 0;
  for (int index = 0; index < 64 * 7; ++index) {
    in.set(unsigned(index), index % 11);
    expected += index % 11;
  }
  ticket.fill(0);
  for (int launch = 0; launch < 3; ++launch) {  // the ticket is back at zero each time
    gpu::launch(7, 64, 0, nullptr, last_block_kernel, in.get(), partial.get(), ticket.get(),
                out.get());
    EXPECT(out[0] == expected && ticket[0] == 0);
  }
}

__global__ void grid_barrier_kernel(unsigned* count, int* data, int* out) {
  if (threadIdx.x == 0) {
    data[blockIdx.x] = int(blockIdx.x) + 1;
    __threadfence();
    atomicAdd(count, 1u);
    while (atomicAdd(count, 0u) < gridDim.x) __nanosleep(20);
    __threadfence();
    int sum = 0;
    for (unsigned block = 0; block < gridDim.x; ++block) sum += data[block];
    out[blockIdx.x] = sum;
  }
}
void run_grid_barrier(unsigned resident) {
  hetero_spec::simt::Options options = hetero_spec::simt::options();
  options.resident_blocks = resident;
  options.spin_limit = 200;
  hetero_spec::simt::configure(options);
  DeviceArray<unsigned> count(1);
  DeviceArray<int> data(8), out(8);
  count.fill(0);
  gpu::launch(8, 32, 0, nullptr, grid_barrier_kernel, count.get(), data.get(), out.get());
  for (unsigned block = 0; block < 8; ++block) EXPECT(out[block] == 36);
}
CASE(grid_barrier) { run_grid_barrier(8); }
CASE(grid_barrier_not_resident) { run_grid_barrier(7); }  // must be reported, not hang

__global__ void look_back_kernel(unsigned* ticket, int* flag, int* prefix) {
  struct Scratch {
    unsigned id;
  };
  Scratch& scratch = gpu::shared<Scratch>();
  if (threadIdx.x == 0) scratch.id = atomicAdd(ticket, 1u);
  __syncthreads();
  const unsigned id = scratch.id;
  if (threadIdx.x != 0) return;
  int before = 0;
  if (id != 0) {
    while (atomicAdd(&flag[id - 1], 0) == 0) __nanosleep(20);
    __threadfence();
    before = prefix[id - 1];
  }
  prefix[id] = before + int(id);
  __threadfence();
  atomicExch(&flag[id], 1);
}
CASE(look_back) {  // each block waits for the one before it
  hetero_spec::simt::Options options = hetero_spec::simt::options();
  options.resident_blocks = 4;
  hetero_spec::simt::configure(options);
  DeviceArray<unsigned> ticket(1);
  DeviceArray<int> flag(16), prefix(16);
  ticket.fill(0);
  flag.fill(0);
  gpu::launch(16, 32, 0, nullptr, look_back_kernel, ticket.get(), flag.get(), prefix.get());
  for (int id = 0; id < 16; ++id) EXPECT(prefix[unsigned(id)] == id * (id + 1) / 2);
}

__global__ void number_formats_kernel(float* out) {
  out[0] = __half2float(__float2half(1.0f / 3));
  out[1] = __bfloat162float(__float2bfloat16(1.0f / 3));
  out[2] = float(__half(2.5f)) + float(__nv_bfloat16(0.5f));
  out[3] = gpu::exp2_approx(3.0f);
  out[4] = float(__popc(0xf0fu) + __clz(1) + __ffs(8) + int(__umulhi(1u << 31, 4)));
  out[5] = __uint_as_float(__float_as_uint(1.5f)) + float(__brev(1u) >> 31);
}
CASE(number_formats) {
  DeviceArray<float> out(6);
  gpu::launch(1, 1, 0, nullptr, number_formats_kernel, out.get());
  EXPECT(out[0] == 0.333251953125f && out[1] == 0.333984375f && out[2] == 3.0f);
  EXPECT(out[3] == 8.0f && out[4] == 8 + 31 + 4 + 2 && out[5] == 2.5f);
}

__global__ void add_one_kernel(int* value, int* order, int mine) {
  *value += 1;
  *order = *order * 10 + mine;
}
CASE(streams) {  // work of one stream runs in order, at the latest when it is synchronised
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  DeviceArray<int> value(1), order(1);
  cudaMemsetAsync(value.get(), 0, sizeof(int), stream);
  cudaMemsetAsync(order.get(), 0, sizeof(int), stream);
  for (int mine = 1; mine <= 3; ++mine) {
    gpu::launch(1, 1, 0, stream, add_one_kernel, value.get(), order.get(), mine);
  }
  int copied = -1;
  cudaMemcpyAsync(&copied, value.get(), sizeof(int), cudaMemcpyDeviceToHost, stream);
  EXPECT(copied == (hetero_spec::simt::options().deferred_streams ? -1 : 3));
  cudaStreamSynchronize(stream);
  EXPECT(copied == 3 && order[0] == 123);
  cudaStreamDestroy(stream);
}

CASE(empty_grid) {  // the launcher's early return
  EXPECT(gpu::launch(0, 32, 0, nullptr, add_one_kernel, nullptr, nullptr, 0) == cudaSuccess);
}

__global__ void deep_stack_kernel(int* out) {  // 20 KB of locals fit, live across a barrier
  volatile int local[5000];
  for (int index = 0; index < 5000; ++index) local[index] = index + int(threadIdx.x);
  __syncthreads();
  int sum = 0;
  for (int index = 0; index < 5000; ++index) sum += local[index] - index;
  out[threadIdx.x] = sum;
}
CASE(deep_stack) {
  DeviceArray<int> out(64);
  gpu::launch(1, 64, 0, nullptr, deep_stack_kernel, out.get());
  EXPECT(out[0] == 0 && out[63] == 63 * 5000);
}

__global__ void schedule_kernel(unsigned* ticket, unsigned* out) {
  out[atomicAdd(ticket, 1u)] = blockIdx.x * blockDim.x + threadIdx.x;
}
CASE(schedule) {  // prints the order in which the threads came, for the tests of the schedules
  DeviceArray<unsigned> ticket(1), out(3 * 40);
  ticket.fill(0);
  gpu::launch(3, 40, 0, nullptr, schedule_kernel, ticket.get(), out.get());
  std::vector<bool> seen(3 * 40, false);
  std::printf("schedule");
  for (unsigned index = 0; index < 3 * 40; ++index) {
    std::printf(" %u", out[index]);
    EXPECT(out[index] < 3 * 40 && !seen[out[index]]);
    if (out[index] < 3 * 40) seen[out[index]] = true;
  }
  std::printf("\n");
}

// ---- known traffic
// -------------------------------------------------------------------------------

__global__ void copy_wide_kernel(const uint4* in, uint4* out) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  __stcs(out + at, __ldcs(in + at));
}
CASE(traffic_wide) {  // 4 x 64 x 16 bytes each way, 16 sectors a request
  DeviceArray<uint4> in(256), out(256);
  cudaMemset(in.get(), 0, 256 * sizeof(uint4));
  hetero_spec::simt::traffic::take();
  gpu::launch(4, 64, 0, nullptr, copy_wide_kernel, in.get(), out.get());
}

__global__ void copy_strided_kernel(const float* in, float* out, int stride) {
  out[threadIdx.x] = in[int(threadIdx.x) * stride];
}
CASE(traffic_strided) {  // 32 lanes, one sector each: 4 useful bytes of 32
  DeviceArray<float> in(32 * 8), out(32);
  cudaMemset(in.get(), 0, 32 * 8 * sizeof(float));
  hetero_spec::simt::traffic::take();
  gpu::launch(1, 32, 0, nullptr, copy_strided_kernel, in.get(), out.get(), 8);
}

__global__ void read_twice_kernel(const float* in, float* out, int times) {
  float sum = 0;
  for (int round = 0; round < times; ++round) sum += __ldg(in + threadIdx.x);
  out[threadIdx.x] = sum;
}
CASE(traffic_twice) {  // the same 128 bytes three times: unique sectors tell
  DeviceArray<float> in(32), out(32);
  cudaMemset(in.get(), 0, 32 * sizeof(float));
  hetero_spec::simt::traffic::take();
  gpu::launch(1, 32, 0, nullptr, read_twice_kernel, in.get(), out.get(), 3);
}

__global__ void bank_conflict_kernel(float* out, int stride) {
  struct Scratch {
    float value[32 * 32];
  };
  Scratch& scratch = gpu::shared<Scratch>();
  scratch.value[int(threadIdx.x) * stride % 1024] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = scratch.value[int(threadIdx.x) * stride % 1024];
}
CASE(traffic_no_bank_conflicts) {
  DeviceArray<float> out(32);
  hetero_spec::simt::traffic::take();
  gpu::launch(1, 32, 0, nullptr, bank_conflict_kernel, out.get(), 1);
}
CASE(traffic_bank_conflicts) {  // stride 32: every lane wants another word of the same bank
  DeviceArray<float> out(32);
  hetero_spec::simt::traffic::take();
  gpu::launch(1, 32, 0, nullptr, bank_conflict_kernel, out.get(), 32);
}

CASE(traffic_atomics) {
  DeviceArray<unsigned> ticket(1), out(64);
  ticket.fill(0);
  hetero_spec::simt::traffic::take();
  gpu::launch(1, 64, 0, nullptr, schedule_kernel, ticket.get(), out.get());
}

}  // namespace
