// Capture and replay of graphs, and the calls that a capture forbids.
#include <array>
#include <thread>

#include "machine.h"

namespace {

__global__ void add(int* x, const int* amount) {
  *x += *amount;
}
__global__ void copy_value(int* to, const int* from) {
  *to = *from;
}

cudaGraphExec_t instantiate(cudaGraph_t graph) {
  cudaGraphExec_t exec = nullptr;
  REQUIRE(cudaGraphInstantiate(&exec, graph) == cudaSuccess);
  REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  return exec;
}

void begin(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
  REQUIRE(cudaStreamBeginCapture(stream, mode) == cudaSuccess);
}
cudaError_t end(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream, &graph);
  CHECK((graph != nullptr) == (error == cudaSuccess));
  return error;
}

}  // namespace

TEST_CASE("a captured step runs at every replay and never before") {
  const Machine machine;
  cudaStream_t stream = make_stream();
  int* x = device_array(std::vector<int>{0});
  int* amount = device_array(std::vector<int>{1});
  int host = 1;
  begin(stream);
  cudaStreamCaptureStatus status{};
  CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusActive);
  REQUIRE(cudaMemcpyAsync(amount, &host, sizeof(int), cudaMemcpyHostToDevice, stream) ==
          cudaSuccess);
  REQUIRE(launch({1, 1, 0, stream}, add, x, amount) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  std::size_t count = 0;
  REQUIRE(cudaGraphGetNodes(graph, nullptr, &count) == cudaSuccess);
  CHECK(count == 2);
  std::vector<cudaGraphNode_t> nodes(count);
  REQUIRE(cudaGraphGetNodes(graph, nodes.data(), &count) == cudaSuccess);
  cudaGraphNodeType type{};
  REQUIRE(cudaGraphNodeGetType(nodes[1], &type) == cudaSuccess);
  CHECK(type == cudaGraphNodeTypeKernel);
  cudaGraphExec_t exec = instantiate(graph);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(host_copy(x, 1)[0] == 0);
  for (const int value : {10, 20, 30}) {
    host = value;  // The graph reads `host` when it runs.
    REQUIRE(cudaGraphLaunch(exec, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  }
  CHECK(host_copy(x, 1)[0] == 60);
  // A launch that is queued in a stream outlives its graph.
  REQUIRE(cudaGraphLaunch(exec, stream) == cudaSuccess);
  REQUIRE(cudaGraphExecDestroy(exec) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(host_copy(x, 1)[0] == 90);
  CHECK(cudaGraphLaunch(exec, stream) == cudaErrorInvalidValue);
}

TEST_CASE(
    "a second stream joins a capture by events, and its order is kept in any order of nodes") {
  for (const bool join : {true, false}) {
    for (const auto kind : {emulation::OrderKind::forward, emulation::OrderKind::reverse}) {
      const Machine machine;
      emulation::set_order({kind, 0});
      cudaStream_t main = make_stream(), side = make_stream();
      cudaEvent_t fork = nullptr, joined = nullptr;
      REQUIRE(cudaEventCreate(&fork) == cudaSuccess);
      REQUIRE(cudaEventCreate(&joined) == cudaSuccess);
      int* x = device_array(std::vector<int>{0, 0, 0});
      begin(main);
      REQUIRE(launch({1, 1, 0, main}, set_value, x, 5) == cudaSuccess);
      REQUIRE(cudaEventRecord(fork, main) == cudaSuccess);
      REQUIRE(cudaStreamWaitEvent(side, fork) == cudaSuccess);
      REQUIRE(launch({1, 1, 0, side}, copy_value, x + 1, x) == cudaSuccess);
      REQUIRE(launch({1, 1, 0, main}, set_value, x + 2, 7) == cudaSuccess);
      REQUIRE(cudaEventRecord(joined, side) == cudaSuccess);
      if (!join) {
        CHECK(end(main) == cudaErrorStreamCaptureUnjoined);
        continue;
      }
      REQUIRE(cudaStreamWaitEvent(main, joined) == cudaSuccess);
      REQUIRE(launch({1, 1, 0, main}, copy_value, x + 2, x + 1) == cudaSuccess);
      cudaGraph_t graph = nullptr;
      REQUIRE(cudaStreamEndCapture(main, &graph) == cudaSuccess);
      REQUIRE(cudaGraphLaunch(instantiate(graph), main) == cudaSuccess);
      REQUIRE(cudaStreamSynchronize(main) == cudaSuccess);
      CHECK(host_copy(x, 3) == std::vector<int>{5, 5, 5});
      cudaStreamCaptureStatus status{};
      CHECK(cudaStreamIsCapturing(side, &status) == cudaSuccess);
      CHECK(status == cudaStreamCaptureStatusNone);
    }
  }
}

TEST_CASE("nodes that do not wait for each other run in the order set") {
  std::vector<int> results;
  for (const auto kind : {emulation::OrderKind::forward, emulation::OrderKind::reverse}) {
    const Machine machine;
    emulation::set_order({kind, 0});
    cudaStream_t main = make_stream(), side = make_stream();
    cudaEvent_t fork = nullptr, joined = nullptr;
    REQUIRE(cudaEventCreate(&fork) == cudaSuccess);
    REQUIRE(cudaEventCreate(&joined) == cudaSuccess);
    int* x = device_array(std::vector<int>{0});
    begin(main);
    REQUIRE(cudaEventRecord(fork, main) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(side, fork) == cudaSuccess);
    REQUIRE(launch({1, 1, 0, main}, set_value, x, 1) == cudaSuccess);
    REQUIRE(launch({1, 1, 0, side}, set_value, x, 2) == cudaSuccess);
    REQUIRE(cudaEventRecord(joined, side) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(main, joined) == cudaSuccess);
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(main, &graph) == cudaSuccess);
    REQUIRE(cudaGraphLaunch(instantiate(graph), main) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(main) == cudaSuccess);
    results.push_back(host_copy(x, 1)[0]);
  }
  CHECK(results == std::vector<int>{2, 1});
}

TEST_CASE("calls that allocate or wait are refused during a capture, and spoil it") {
  const auto spoils = [](auto call, cudaError_t expected = cudaErrorStreamCaptureUnsupported) {
    const Machine machine;
    cudaStream_t stream = make_stream();
    void* memory = device_array<int>(4);
    begin(stream);
    CHECK(call(stream, memory) == expected);
    cudaStreamCaptureStatus status{};
    CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusInvalidated);
    CHECK(cudaMemsetAsync(memory, 0, 4, stream) == cudaErrorStreamCaptureInvalidated);
    CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  };
  spoils([](cudaStream_t, void*) {
    void* more = nullptr;
    return cudaMalloc(&more, 16);
  });
  spoils([](cudaStream_t, void* memory) { return cudaFree(memory); });
  spoils([](cudaStream_t stream, void*) { return cudaStreamSynchronize(stream); });
  spoils([](cudaStream_t stream, void*) { return cudaStreamQuery(stream); });
  spoils([](cudaStream_t, void*) { return cudaDeviceSynchronize(); });
  spoils([](cudaStream_t, void* memory) { return cudaMemset(memory, 0, 4); });
  spoils(
      [](cudaStream_t stream, void*) {
        cudaStream_t other = make_stream();
        cudaEvent_t event = nullptr;
        REQUIRE(cudaEventCreate(&event) == cudaSuccess);
        REQUIRE(cudaEventRecord(event, other) == cudaSuccess);
        return cudaStreamWaitEvent(stream, event);
      },
      cudaErrorStreamCaptureIsolation);
  spoils(
      [](cudaStream_t stream, void*) {
        cudaEvent_t event = nullptr;
        REQUIRE(cudaEventCreate(&event) == cudaSuccess);
        REQUIRE(cudaEventRecord(event, stream) == cudaSuccess);
        CHECK(cudaThreadExchangeStreamCaptureMode(
                  std::array{cudaStreamCaptureModeRelaxed}.data()) == cudaSuccess);
        const cudaError_t error = cudaEventSynchronize(event);
        CHECK(cudaThreadExchangeStreamCaptureMode(std::array{cudaStreamCaptureModeGlobal}.data()) ==
              cudaSuccess);
        return error;
      },
      cudaErrorCapturedEvent);
}

TEST_CASE("which threads a capture restricts depends on its mode") {
  const auto other_thread_allocates = [](cudaStreamCaptureMode mode) {
    const Machine machine;
    cudaStream_t stream = make_stream();
    begin(stream, mode);
    cudaError_t error = cudaSuccess;
    std::thread([&] {
      void* memory = nullptr;
      error = cudaMalloc(&memory, 16);
    }).join();
    CHECK(end(stream) == (error == cudaSuccess ? cudaSuccess : cudaErrorStreamCaptureInvalidated));
    return error;
  };
  CHECK(other_thread_allocates(cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
  CHECK(other_thread_allocates(cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(other_thread_allocates(cudaStreamCaptureModeRelaxed) == cudaSuccess);

  const Machine machine;
  cudaStream_t stream = make_stream();
  begin(stream, cudaStreamCaptureModeRelaxed);
  device_array<int>(4);
  CHECK(end(stream) == cudaSuccess);
}

TEST_CASE("captures begin and end where they may") {
  const Machine machine;
  cudaStream_t stream = make_stream(), blocking = make_stream(cudaStreamDefault);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorIllegalState);
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) ==
        cudaErrorStreamCaptureUnsupported);
  begin(stream);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaErrorIllegalState);
  cudaError_t error = cudaSuccess;
  std::thread([&] { error = cudaStreamEndCapture(stream, &graph); }).join();
  CHECK(error == cudaErrorStreamCaptureWrongThread);
  CHECK(end(stream) == cudaSuccess);
  // The legacy stream would have to wait for the capturing stream.
  int* x = device_array<int>(1);
  begin(blocking, cudaStreamCaptureModeRelaxed);
  CHECK(launch({1, 1}, set_value, x, 1) == cudaErrorStreamCaptureImplicit);
  CHECK(end(blocking) == cudaErrorStreamCaptureInvalidated);
}
