// Work runs as late as CUDA permits, so work that a program did not wait for has not happened.
#include <atomic>
#include <numeric>
#include <thread>

#include "machine.h"

namespace {

__global__ void add_to(int* sum, const int* x) {
  *sum += *x;
}

std::vector<int> values(int first) {
  return {first, first + 1, first + 2};
}
constexpr std::size_t kBytes = 3 * sizeof(int);

}  // namespace

TEST_CASE("nothing has happened before the stream is waited for") {
  const Machine machine;
  cudaStream_t stream = make_stream();
  int* x = device_array<int>(3);
  std::vector<int> host = values(1), back(3, -1);
  REQUIRE(cudaMemcpyAsync(x, host.data(), kBytes, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  REQUIRE(launch({1, 1, 0, stream}, set_value, x, 9) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(back.data(), x, kBytes, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  CHECK(emulation::work_waiting() == 3);
  CHECK(back == std::vector<int>(3, -1));
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(back == std::vector<int>{9, 2, 3});
  CHECK(emulation::work_waiting() == 0);
}

TEST_CASE("host memory that changes before the copy ran is copied as it is then") {
  const Machine machine;
  cudaStream_t stream = make_stream();
  int* x = device_array<int>(3);
  std::vector<int> host = values(1);
  REQUIRE(cudaMemcpyAsync(x, host.data(), kBytes, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  std::iota(host.begin(), host.end(), 100);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(host_copy(x, 3) == values(100));
}

TEST_CASE("a copy from pageable memory has read it when the call returns, and arrives later") {
  for (const bool wait : {true, false}) {
    const Machine machine;
    cudaStream_t stream = make_stream();
    int* sum = device_array(std::vector<int>{0});
    int* x = device_array(std::vector<int>{1});
    int host = 5;
    REQUIRE(cudaMemcpy(x, &host, sizeof(int), cudaMemcpyHostToDevice) == cudaSuccess);
    host = 50;
    if (wait) REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
    REQUIRE(launch({1, 1, 0, stream}, add_to, sum, x) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(host_copy(sum, 1)[0] == (wait ? 5 : 1));
  }
}

TEST_CASE("a missing wait between streams gives a wrong result, the wait the right one") {
  for (const bool wait : {true, false}) {
    const Machine machine;
    cudaStream_t producer = make_stream(), consumer = make_stream();
    cudaEvent_t event = nullptr;
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    int* x = device_array(std::vector<int>{1});
    int* sum = device_array(std::vector<int>{0});
    REQUIRE(launch({1, 1, 0, producer}, set_value, x, 5) == cudaSuccess);
    REQUIRE(cudaEventRecord(event, producer) == cudaSuccess);
    // The wait does not cover work queued after the record.
    REQUIRE(launch({1, 1, 0, producer}, set_value, x, 50) == cudaSuccess);
    if (wait) REQUIRE(cudaStreamWaitEvent(consumer, event) == cudaSuccess);
    REQUIRE(launch({1, 1, 0, consumer}, add_to, sum, x) == cudaSuccess);
    int result = 0;
    REQUIRE(cudaMemcpyAsync(&result, sum, sizeof(int), cudaMemcpyDeviceToHost, consumer) ==
            cudaSuccess);
    REQUIRE(cudaStreamSynchronize(consumer) == cudaSuccess);
    CHECK(result == (wait ? 5 : 1));
  }
}

TEST_CASE("a wait means the record before it, even if the event is recorded again") {
  const Machine machine;
  cudaStream_t first = make_stream(), second = make_stream();
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreate(&event) == cudaSuccess);
  int* x = device_array(std::vector<int>{0});
  int* sum = device_array(std::vector<int>{0});
  REQUIRE(launch({1, 1, 0, first}, set_value, x, 1) == cudaSuccess);
  REQUIRE(cudaEventRecord(event, first) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(second, event) == cudaSuccess);
  REQUIRE(launch({1, 1, 0, second}, add_to, sum, x) == cudaSuccess);
  REQUIRE(launch({1, 1, 0, first}, set_value, x, 7) == cudaSuccess);
  REQUIRE(cudaEventRecord(event, first) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(second) == cudaSuccess);
  CHECK(host_copy(sum, 1)[0] == 1);
  REQUIRE(cudaEventSynchronize(event) == cudaSuccess);
  CHECK(host_copy(x, 1)[0] == 7);
}

TEST_CASE("events: first not ready, then ready, with times that grow") {
  const Machine machine;
  cudaStream_t stream = make_stream();
  cudaEvent_t start = nullptr, end = nullptr;
  REQUIRE(cudaEventCreate(&start) == cudaSuccess);
  REQUIRE(cudaEventCreate(&end) == cudaSuccess);
  float milliseconds = -1;
  CHECK(cudaEventQuery(start) == cudaSuccess);  // Never recorded, so there is nothing to wait for.
  CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorInvalidResourceHandle);
  int* x = device_array<int>(1);
  REQUIRE(cudaEventRecord(start, stream) == cudaSuccess);
  REQUIRE(launch({1, 1, 0, stream}, set_value, x, 1) == cudaSuccess);
  REQUIRE(cudaEventRecord(end, stream) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorNotReady);
  CHECK(cudaEventQuery(end) == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaErrorNotReady);
  CHECK(cudaEventQuery(end) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess);
  CHECK(milliseconds >= 0);

  REQUIRE(launch({1, 1, 0, stream}, set_value, x, 2) == cudaSuccess);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
}

TEST_CASE("the legacy stream waits for blocking streams, and not for others") {
  for (const unsigned flags : {cudaStreamDefault, cudaStreamNonBlocking}) {
    const Machine machine;
    cudaStream_t stream = make_stream(flags);
    int* x = device_array(std::vector<int>{1});
    REQUIRE(launch({1, 1, 0, stream}, set_value, x, 2) == cudaSuccess);
    CHECK(host_copy(x, 1)[0] == (flags == cudaStreamDefault ? 2 : 1));
    // Blocking streams wait for the legacy stream.
    REQUIRE(launch({1, 1}, set_value, x, 3) == cudaSuccess);
    int* sum = device_array(std::vector<int>{0});
    REQUIRE(launch({1, 1, 0, stream}, add_to, sum, x) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(host_copy(sum, 1)[0] == (flags == cudaStreamDefault ? 3 : 2));
  }
}

TEST_CASE("host functions run in their stream's order and may make no CUDA calls") {
  const Machine machine;
  cudaStream_t stream = make_stream();
  struct Seen {
    int* x;
    int value;
    cudaError_t error;
  } seen{device_array(std::vector<int>{1}), 0, cudaSuccess};
  REQUIRE(launch({1, 1, 0, stream}, set_value, seen.x, 4) == cudaSuccess);
  REQUIRE(cudaLaunchHostFunc(
              stream,
              [](void* data) {
                Seen& s = *static_cast<Seen*>(data);
                s.value = *s.x;  // In the emulation, the host can read device memory.
                s.error = cudaStreamSynchronize(nullptr);
              },
              &seen) == cudaSuccess);
  CHECK(seen.value == 0);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(seen.value == 4);
  CHECK(seen.error == cudaErrorNotPermitted);
}

TEST_CASE("host threads use their own devices and streams at the same time") {
  const Machine machine(4);
  std::vector<int> sums(4);
  std::vector<std::thread> threads;
  std::atomic<int> failed = 0;
  for (int device = 0; device < 4; ++device) {
    threads.emplace_back([&, device] {
      const auto good = [&](cudaError_t error) { failed += error != cudaSuccess; };
      good(cudaSetDevice(device));
      cudaStream_t stream = nullptr;
      good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      int *x = nullptr, *sum = nullptr;
      good(cudaMalloc(&x, sizeof(int)));
      good(cudaMalloc(&sum, sizeof(int)));
      good(cudaMemsetAsync(sum, 0, sizeof(int), stream));
      for (int i = 0; i < 200; ++i) {
        good(launch({1, 1, 0, stream}, set_value, x, i + device));
        good(launch({1, 1, 0, stream}, add_to, sum, x));
        if (i % 50 == 0) good(cudaStreamSynchronize(stream));
      }
      good(cudaMemcpyAsync(&sums[device], sum, sizeof(int), cudaMemcpyDeviceToHost, stream));
      good(cudaStreamSynchronize(stream));
      good(cudaStreamDestroy(stream));
      good(cudaFree(x));
      good(cudaFree(sum));
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(failed == 0);
  for (int device = 0; device < 4; ++device) {
    CHECK(sums[device] == 199 * 100 + 200 * device);
  }
}

TEST_CASE("a host function may wait for another host thread that calls CUDA") {
  const Machine machine;
  cudaStream_t stream = make_stream();
  std::atomic<bool> released = false;
  REQUIRE(cudaLaunchHostFunc(
              stream,
              [](void* data) {
                while (!*static_cast<std::atomic<bool>*>(data)) std::this_thread::yield();
              },
              &released) == cudaSuccess);
  std::thread other([&] {
    void* memory = nullptr;
    cudaMalloc(&memory, 16);
    released = true;
  });
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  other.join();
}
