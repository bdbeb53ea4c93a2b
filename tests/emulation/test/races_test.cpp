// The race detector: kernels that lack one barrier or fence, and the same kernels with it.
#include <string>

#include "machine.h"

namespace {

constexpr int kBlocks = 5, kThreads = 96;

/// Runs one launch, which must succeed, in this order of threads and blocks. Returns its reports.
template <class... Params, class... Args>
std::vector<std::string> races_of(emulation::Order order, Shape shape, void (*kernel)(Params...),
                                  Args... args) {
  emulation::take_races();
  emulation::set_order(order);
  REQUIRE(launch(shape, kernel, args...) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  return emulation::take_races();
}

/// Checks that the kernel has a race in every order, or in none.
template <class... Params, class... Args>
void check(bool race, Shape shape, void (*kernel)(Params...), Args... args) {
  using emulation::OrderKind;
  for (const emulation::Order order :
       {emulation::Order{OrderKind::forward, 0}, emulation::Order{OrderKind::reverse, 0},
        emulation::Order{OrderKind::random, 1}, emulation::Order{OrderKind::random, 2}}) {
    const auto races = races_of(order, shape, kernel, args...);
    CAPTURE(static_cast<int>(order.kind));
    CAPTURE(order.seed);
    CAPTURE(races.empty() ? std::string() : races.front());
    CHECK(races.empty() != race);
  }
}

/// Returns true in builds without the detector, which skip the cases.
bool absent() {
  return !emulation::detects_races();
}

constexpr int kRotateWrite = __LINE__ + 3, kRotateRead = __LINE__ + 5;
__global__ void rotate(int* x, bool barrier) {
  __shared__ int tile[kThreads];
  tile[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  if (barrier) __syncthreads();
  x[blockIdx.x * blockDim.x + threadIdx.x] = tile[(threadIdx.x + 1) % blockDim.x];
}

/// Adds up a tile in two rounds. A barrier must separate its writes from its reads, and its reads
/// from the next writes.
__global__ void add_up(int* x, bool before_reads, bool before_writes) {
  auto* tile = static_cast<int*>(emulation::dynamic_shared_memory());
  for (int round = 0; round < 2; ++round) {
    tile[threadIdx.x] = x[threadIdx.x] + round;
    if (before_reads) __syncthreads();
    int sum = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) sum += tile[i];
    if (before_writes) __syncthreads();
    x[threadIdx.x] = sum;
  }
}

/// Moves values between the lanes of a warp. The shuffle orders no memory.
__global__ void exchange(int* x, bool barrier) {
  __shared__ int tile[kThreads];
  const unsigned lane = threadIdx.x % 32;
  tile[threadIdx.x] = x[threadIdx.x];
  const unsigned other = __shfl_xor_sync(0xffffffffU, lane, 1);
  if (barrier) __syncwarp();
  x[threadIdx.x] = tile[threadIdx.x - lane + other];
}

/// Moves values over a distance, with a barrier of each half of the warp.
__global__ void exchange_halves(int* x, unsigned distance) {
  __shared__ int tile[32];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncwarp(threadIdx.x < 16 ? 0xffffU : 0xffff0000U);
  x[threadIdx.x] = tile[threadIdx.x ^ distance];
}

/// Follows an index that another thread stores. Without the barrier, it may read unwritten memory.
/// The emulation fills that memory with -1, so the kernel crashes.
__global__ void follow_index(int* x, bool barrier) {
  __shared__ long long at[64];
  at[threadIdx.x] = threadIdx.x;
  if (barrier) __syncthreads();
  const long long next = at[63 - threadIdx.x];
  if (next < 0) *reinterpret_cast<volatile int*>(next) = 1;
  x[threadIdx.x] = static_cast<int>(next);
}

struct Parts {
  bool release = true, barrier_before = true, barrier_after = true, acquire = true;
};

/// Sums the numbers of all threads. The block that ends last adds them up, as in is_last_block.h.
__global__ void sum_grid(int* parts, unsigned* counter, int* sum, Parts has) {
  __shared__ bool last;
  parts[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<int>(threadIdx.x);
  if (has.release) __threadfence();
  if (has.barrier_before) __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(counter, 1U) == gridDim.x - 1;
    if (last) *counter = 0;
  }
  if (has.barrier_after) __syncthreads();
  if (!last) return;
  if (has.acquire) __threadfence();
  int mine = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x * blockDim.x; i += blockDim.x) {
    mine += __ldcg(parts + i);
  }
  atomicAdd(sum, mine);
}

/// Does the same as `sum_grid`, but a single thread of each block stores the block's sum, releases
/// it and acquires the others.
__global__ void sum_blocks(int* parts, unsigned* counter, int* sum, bool release, bool acquire) {
  if (threadIdx.x != 0) return;
  parts[blockIdx.x] = 1;
  if (release) __threadfence();
  if (atomicAdd(counter, 1U) != gridDim.x - 1) return;
  if (acquire) __threadfence();
  int total = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) total += parts[i];
  *sum = total;
  *counter = 0;
}

/// Writes the same value to one address in all threads, which is a race, too.
__global__ void write_one(int* x) {
  *x = 1;
}
__global__ void write_own_byte(signed char* x) {
  x[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}
__global__ void write_overlapping(signed char* x) {
  const auto at = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
  auto* pair = reinterpret_cast<char2*>(x) + at / 2;
  *pair = {1, 1};
  if (threadIdx.x == 3) x[at + 2] = 2;
}
__global__ void count_and_read(unsigned* x, int* out, bool plain) {
  const unsigned before = atomicAdd(x, 1U);
  if (plain && threadIdx.x == 5) *out = static_cast<int>(*x);
  if (before == 0xffffffffU) *out = 1;
}

}  // namespace

TEST_CASE("races: a missing barrier of a block") {
  if (absent()) return;
  const Machine machine;
  int* x = device_array(std::vector<int>(kBlocks * kThreads, 1));
  check(false, {kBlocks, kThreads}, rotate, x, true);
  check(true, {kBlocks, kThreads}, rotate, x, false);
  check(true, {1, 2}, rotate, x, false);
  const Shape shape{1, kThreads, kThreads * sizeof(int)};
  check(false, shape, add_up, x, true, true);
  check(true, shape, add_up, x, false, true);
  check(true, shape, add_up, x, true, false);
}

TEST_CASE("races: a missing barrier of a warp") {
  if (absent()) return;
  const Machine machine;
  int* x = device_array(std::vector<int>(kThreads, 1));
  check(false, {1, kThreads}, exchange, x, true);
  check(true, {1, kThreads}, exchange, x, false);
  check(false, {1, 32}, exchange_halves, x, 3U);
  check(true, {1, 32}, exchange_halves, x, 16U);
}

TEST_CASE("races: a thread that crashes for lack of a barrier does not hide the race") {
  if (absent()) return;
  const Machine machine;
  int* x = device_array(std::vector<int>(64, 1));
  check(false, {1, 64}, follow_index, x, true);
  emulation::take_races();
  REQUIRE(launch({1, 64}, follow_index, x, false) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  CHECK(emulation::last_fault().starts_with("an access to an invalid address"));
  CHECK(!emulation::take_races().empty());
}

TEST_CASE("races: missing fences between blocks") {
  if (absent()) return;
  const Machine machine;
  int* parts = device_array<int>(kBlocks * kThreads);
  int* sum = device_array(std::vector<int>(1, 0));
  unsigned* counter = device_array(std::vector<unsigned>(1, 0));
  const Shape shape{kBlocks, kThreads};
  check(false, shape, sum_grid, parts, counter, sum, Parts{});
  check(true, shape, sum_grid, parts, counter, sum, Parts{.release = false});
  check(true, shape, sum_grid, parts, counter, sum, Parts{.barrier_before = false});
  check(true, shape, sum_grid, parts, counter, sum, Parts{.acquire = false});
  check(false, shape, sum_blocks, parts, counter, sum, true, true);
  check(true, shape, sum_blocks, parts, counter, sum, false, true);
  check(true, shape, sum_blocks, parts, counter, sum, true, false);
}

TEST_CASE("races: neighbouring bytes and atomic operations are none") {
  if (absent()) return;
  const Machine machine;
  auto* bytes = device_array<signed char>(2 * kBlocks * kThreads + 2);
  check(false, {kBlocks, kThreads}, write_own_byte, bytes);
  check(true, {kBlocks, kThreads}, write_overlapping, bytes);
  int* x = device_array(std::vector<int>(1, 0));
  check(true, {kBlocks, 1}, write_one, x);
  check(true, {1, 2}, write_one, x);
  check(false, {1, 1}, write_one, x);
  unsigned* counter = device_array(std::vector<unsigned>(1, 0));
  check(false, {kBlocks, kThreads}, count_and_read, counter, x, false);
  check(true, {kBlocks, kThreads}, count_and_read, counter, x, true);
}

TEST_CASE("races: a report names the kernel, both places, the threads and the memory") {
  if (absent()) return;
  const Machine machine;
  int* x = device_array(std::vector<int>(2 * kThreads, 1));
  const auto races = races_of({}, {2, 64}, rotate, x, false);
  REQUIRE(!races.empty());
  const std::string& text = races.front();
  CAPTURE(text);
  CHECK(text.find("rotate") != std::string::npos);
  CHECK(text.find("shared memory") != std::string::npos);
  CHECK(text.find("block 0,0,0 thread 0,0,0") != std::string::npos);
  CHECK(text.find("block 0,0,0 thread 1,0,0") != std::string::npos);
  CHECK(text.find("races_test.cpp:" + std::to_string(kRotateWrite)) != std::string::npos);
  CHECK(text.find("races_test.cpp:" + std::to_string(kRotateRead)) != std::string::npos);
  const auto global = races_of({}, {3, 1}, write_one, x + 1);
  REQUIRE(!global.empty());
  CHECK(global.front().find("byte 4 of 768 bytes of global memory") != std::string::npos);
  CHECK(emulation::take_races().empty());
}
