// Threads, barriers, shared memory and warp operations, and the order in which threads run.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "machine.h"

namespace {

using emulation::OrderKind;

const emulation::Order kOrders[] = {{OrderKind::forward, 0},
                                    {OrderKind::reverse, 0},
                                    {OrderKind::random, 1},
                                    {OrderKind::random, 2}};

std::vector<int> iota(int count) {
  std::vector<int> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

__global__ void write_place(int* out) {
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] = static_cast<int>(block * threads + thread);
}

__global__ void reverse_block(int* x) {
  __shared__ int tile[256];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

/// Reverses a block like reverse_block, but lacks the barrier.
__global__ void reverse_block_without_barrier(int* x) {
  __shared__ int tile[256];
  tile[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

/// Sums the lanes of each of 8 warps, then the sums of the warps, in each of `rounds` rounds.
__global__ void sum_block(const int* x, int* sum, int rounds) {
  int* parts = static_cast<int*>(emulation::dynamic_shared_memory());
  for (int round = 0; round < rounds; ++round) {
    int value = x[threadIdx.x];
    for (int distance = 16; distance > 0; distance /= 2) {
      value += __shfl_down_sync(0xffffffffU, value, static_cast<unsigned>(distance));
    }
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
      int total = 0;
      for (unsigned w = 0; w < blockDim.x / 32; ++w) total += parts[w];
      sum[round] = total;
    }
    __syncthreads();
  }
}

__global__ void leave_before_barrier(int* x) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  x[threadIdx.x] = 1;
}
__global__ void two_barriers(int* x) {
  if (threadIdx.x < 32) {
    x[threadIdx.x] = 1;
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void leave_before_shuffle(int* x) {
  if (threadIdx.x == 7) return;
  x[threadIdx.x] = __shfl_xor_sync(0xffffffffU, static_cast<int>(threadIdx.x), 1);
}
__global__ void shuffle_against_barrier(int* x) {
  if (threadIdx.x < 16) {
    x[threadIdx.x] = __shfl_sync(0xffffffffU, 1, 0);
  } else {
    __syncthreads();
  }
}
__global__ void wrong_mask(int* x) {
  x[threadIdx.x] = __shfl_sync(0x0000ffffU, 1, 0);
}
__global__ void different_masks(int* x) {
  const unsigned mask = threadIdx.x < 16 ? 0xffffffffU : 0xffff0000U;
  x[threadIdx.x] = __shfl_sync(mask, 1, 0);
}
__global__ void trap(int* x) {
  if (threadIdx.x == 3) __trap();
  x[threadIdx.x] = 1;
}
__global__ void write_behind_shared(int*) {
  static_cast<int*>(emulation::dynamic_shared_memory())[16] = 1;
}

struct WarpResults {
  int shfl, up, down, across, narrow_up, narrow_down, narrow_index, any, all;
  unsigned ballot;
};
__global__ void warp_operations(WarpResults* out) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const unsigned full = 0xffffffffU;
  WarpResults r;
  r.shfl = __shfl_sync(full, lane * 10, 33);
  r.up = __shfl_up_sync(full, lane, 3);
  r.down = __shfl_down_sync(full, lane, 3);
  r.across = __shfl_xor_sync(full, lane, 5);
  r.narrow_up = __shfl_up_sync(full, lane, 1, 8);
  r.narrow_down = __shfl_down_sync(full, lane, 1, 8);
  r.narrow_index = __shfl_sync(full, lane, 3, 8);
  r.any = __any_sync(full, lane == 9);
  r.all = __all_sync(full, lane < 31);
  r.ballot = __ballot_sync(full, lane % 2);
  out[threadIdx.x] = r;
}

__global__ void half_warps(int* out) {
  const unsigned mask = threadIdx.x < 16 ? 0x0000ffffU : 0xffff0000U;
  int value = static_cast<int>(threadIdx.x);
  for (int distance = 8; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(mask, value, distance);
  }
  out[threadIdx.x] = value;
}

/// Reads lane 31, which a block of 20 threads does not have.
__global__ void read_missing_lane(float* out) {
  out[threadIdx.x] = __shfl_sync(0xffffffffU, 1.0F, 31);
}

/// Gives each lane the value of the next lane through shared memory, twice. The __syncwarp calls
/// that this needs are missing unless `wait` is true.
__global__ void pass_on(int* x, bool wait) {
  __shared__ int slots[32];
  const unsigned lane = threadIdx.x;
  for (int round = 0; round < 2; ++round) {
    slots[lane] = x[lane];
    if (wait) __syncwarp();
    x[lane] = slots[(lane + 1) % 32];
    if (wait) __syncwarp();
  }
}

__global__ void reverse_lanes(float* x) {
  float result = 0;
  emulation::warp_collective(x[threadIdx.x], result,
                             [](std::span<const float, 32> in, std::span<float, 32> out) {
                               for (int i = 0; i < 32; ++i) out[i] = 2 * in[31 - i];
                             });
  x[threadIdx.x] = result;
}

__global__ void count_blocks(unsigned* counter, int* order) {
  order[atomicAdd(counter, 1U)] = static_cast<int>(blockIdx.x);
}

__global__ void read_fresh_shared(float* out) {
  float* shared = static_cast<float*>(emulation::dynamic_shared_memory());
  out[blockIdx.x] = shared[5];
  shared[5] = 1.0F;
}

template <class T>
__device__ T* variable_of_a_helper() {
  __shared__ T variable[3];
  return variable;
}
template <class T>
__global__ void read_fresh_variable(T* out) {
  T* shared = variable_of_a_helper<T>();
  out[blockIdx.x] = shared[1];
  shared[0] = shared[1] = shared[2] = T{1};
}

/// Runs the kernel, which must fault, and returns its fault.
template <class... Params, class... Args>
std::string fault_of(Shape shape, void (*kernel)(Params...), Args... args) {
  REQUIRE(launch(shape, kernel, args...) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  return emulation::last_fault();
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("every thread of every block runs once, at its own place") {
  for (const auto order : kOrders) {
    const Machine machine;
    emulation::set_order(order);
    const int count = 3 * 2 * 2 * 7 * 5 * 3;
    int* out = device_array(std::vector<int>(count, -1));
    REQUIRE(launch({dim3(3, 2, 2), dim3(7, 5, 3)}, write_place, out) == cudaSuccess);
    CHECK(host_copy(out, count) == iota(count));
  }
}

TEST_CASE("barriers order what threads of a block write and read") {
  for (const auto order : kOrders) {
    const Machine machine;
    emulation::set_order(order);
    for (const unsigned threads : {1U, 31U, 32U, 33U, 256U}) {
      std::vector<int> expected = iota(static_cast<int>(threads));
      int* x = device_array(expected);
      REQUIRE(launch({1, threads}, reverse_block, x) == cudaSuccess);
      std::reverse(expected.begin(), expected.end());
      CHECK(host_copy(x, threads) == expected);
    }
  }
}

TEST_CASE("a forgotten barrier gives different results in different orders") {
  std::vector<std::vector<int>> results;
  for (const auto order : kOrders) {
    const Machine machine;
    emulation::set_order(order);
    int* x = device_array(iota(256));
    REQUIRE(launch({1, 256}, reverse_block_without_barrier, x) == cudaSuccess);
    results.push_back(host_copy(x, 256));
    CHECK(emulation::take_races().empty() != emulation::detects_races());
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) CHECK(results[i] != results[j]);
  }
}

TEST_CASE("a block's sum by shuffles and barriers, many rounds") {
  for (const auto order : kOrders) {
    const Machine machine;
    emulation::set_order(order);
    int* x = device_array(iota(256));
    int* sum = device_array<int>(10);
    REQUIRE(launch({1, 256, 32}, sum_block, x, sum, 10) == cudaSuccess);
    CHECK(host_copy(sum, 10) == std::vector<int>(10, 255 * 128));
  }
}

TEST_CASE("barriers that some threads do not reach are faults, not hangs") {
  emulation::Order order;
  const auto check = [&](void (*kernel)(int*), const char* expected) {
    const Machine machine(1);
    emulation::set_order(order);
    int* x = device_array<int>(64);
    const std::string fault = fault_of({1, 64}, kernel, x);
    CHECK_MESSAGE(contains(fault, expected), fault);
    CHECK_MESSAGE(contains(fault, "execution_test.cpp:"), fault);
    // The device is lost, but a fresh one works.
    CHECK(cudaMemset(x, 0, 4) == cudaErrorLaunchFailure);
    REQUIRE(cudaDeviceReset() == cudaSuccess);
    int* y = device_array(iota(64));
    REQUIRE(launch({1, 64}, reverse_block, y) == cudaSuccess);
    CHECK(host_copy(y, 64)[0] == 63);
  };
  for (const auto each : kOrders) {
    order = each;
    check(leave_before_barrier, "barrier");
    check(two_barriers, "waits at the barrier at");
    check(leave_before_shuffle, "lane 7");
    check(wrong_mask, "is not in the mask");
    check(different_masks, "mask 0xffff");
  }
  check(shuffle_against_barrier, "barrier");
  check(trap, "__trap()");
}

TEST_CASE("a write past dynamic shared memory is a fault") {
  const Machine machine(1);
  CHECK(contains(fault_of({1, 1, 64}, write_behind_shared, static_cast<int*>(nullptr)),
                 "past the 64 bytes of dynamic shared memory"));
}

TEST_CASE("shuffles and votes") {
  for (const auto order : kOrders) {
    const Machine machine;
    emulation::set_order(order);
    auto* out = device_array<WarpResults>(64);
    REQUIRE(launch({1, 64}, warp_operations, out) == cudaSuccess);
    const auto results = host_copy(out, 64);
    for (int thread = 0; thread < 64; ++thread) {
      const int lane = thread % 32;
      const WarpResults& r = results[thread];
      CHECK(r.shfl == 10);  // Lane 33 wraps to lane 1.
      CHECK(r.up == (lane < 3 ? lane : lane - 3));
      CHECK(r.down == (lane > 28 ? lane : lane + 3));
      CHECK(r.across == (lane ^ 5));
      CHECK(r.narrow_up == (lane % 8 == 0 ? lane : lane - 1));
      CHECK(r.narrow_down == (lane % 8 == 7 ? lane : lane + 1));
      CHECK(r.narrow_index == lane / 8 * 8 + 3);
      CHECK(r.any == 1);
      CHECK(r.all == 0);
      CHECK(r.ballot == 0xaaaaaaaaU);
    }
  }
}

TEST_CASE("parts of a warp that shuffle among themselves") {
  for (const auto order : kOrders) {
    const Machine machine;
    emulation::set_order(order);
    int* out = device_array<int>(32);
    REQUIRE(launch({1, 32}, half_warps, out) == cudaSuccess);
    const auto sums = host_copy(out, 32);
    CHECK(sums[0] == 120);
    CHECK(sums[31] == 376);
  }
}

TEST_CASE("a lane that does not exist gives a NaN") {
  const Machine machine;
  float* out = device_array<float>(20);
  REQUIRE(launch({1, 20}, read_missing_lane, out) == cudaSuccess);
  CHECK(std::isnan(host_copy(out, 20)[0]));
}

TEST_CASE("a forgotten __syncwarp changes the result") {
  std::vector<int> expected = iota(32);
  std::rotate(expected.begin(), expected.begin() + 2, expected.end());
  for (const auto order : kOrders) {
    for (const bool wait : {true, false}) {
      const Machine machine;
      emulation::set_order(order);
      int* x = device_array(iota(32));
      REQUIRE(launch({1, 32}, pass_on, x, wait) == cudaSuccess);
      CHECK((host_copy(x, 32) == expected) == wait);
      CHECK(emulation::take_races().empty() == (wait || !emulation::detects_races()));
    }
  }
}

TEST_CASE("a warp collective sees all 32 lanes once") {
  const Machine machine;
  std::vector<float> values(64);
  std::iota(values.begin(), values.end(), 0.0F);
  float* x = device_array(values);
  REQUIRE(launch({1, 64}, reverse_lanes, x) == cudaSuccess);
  const auto result = host_copy(x, 64);
  CHECK(result[0] == 62.0F);
  CHECK(result[32] == 126.0F);
  float* y = device_array(values);
  CHECK(contains(fault_of({1, 48}, reverse_lanes, y), "fewer"));
}

TEST_CASE("blocks run in the set order, and each order is a permutation") {
  std::vector<std::vector<int>> seen;
  for (const auto order : kOrders) {
    const Machine machine;
    emulation::set_order(order);
    auto* counter = device_array(std::vector<unsigned>(1, 0));
    int* blocks = device_array<int>(60);
    REQUIRE(launch({60, 1}, count_blocks, counter, blocks) == cudaSuccess);
    seen.push_back(host_copy(blocks, 60));
    auto sorted = seen.back();
    std::sort(sorted.begin(), sorted.end());
    CHECK(sorted == iota(60));
  }
  CHECK(seen[0] == iota(60));
  CHECK(seen[1][0] == 59);
  CHECK(seen[2] != seen[0]);
  CHECK(seen[2] != seen[3]);
}

TEST_CASE("shared memory starts as NaN in every block") {
  const Machine machine;
  float* out = device_array<float>(6);
  REQUIRE(launch({3, 1, 64}, read_fresh_shared, out) == cudaSuccess);
  REQUIRE(launch({3, 1}, read_fresh_variable<float>, out + 3) == cudaSuccess);
  auto values = host_copy(out, 6);
  // Only the first block finds 0, because its writes show which variables are shared memory.
  CHECK(values[3] == 0.0F);
  values.erase(values.begin() + 3);
  for (const float value : values) CHECK(std::isnan(value));
}
