#include "kernels/cuda/runtime/timing.h"

#include <algorithm>
#include <limits>

#include "kernels/base/philox.h"
#include "kernels/base/stop_request.h"
#include "kernels/common/bf16.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/wait.h"

namespace dpt {
namespace {

constexpr int kRounds = 5, kMaxRuns = 20;
/// Maximum duration of a replay of several runs. A launch takes the host 3 us.
constexpr float kMilliseconds = 1.0F;
constexpr float kNever = std::numeric_limits<float>::infinity();

}  // namespace

std::string machine_key(const CudaContext& context) {
  int driver = 0, runtime = 0;
  cuda_check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda_check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  return fmt::format("{} sm_{}{} driver {} runtime {}", context.gpu, context.compute_major,
                     context.compute_minor, driver, runtime);
}

Timing::Event Timing::make_event() {
  cudaEvent_t event = nullptr;
  cuda_check(cudaEventCreate(&event), "cudaEventCreate");
  return Event(event);
}

Timing::Timing(const CudaContext& context)
    : context_(context), begin_(make_event()), end_(make_event()) {}

Timing::~Timing() {
  if (is_device_lost()) return;
  cudaStreamSynchronize(context_.stream);
  for (void* memory : memory_) cudaFree(memory);
}

void* Timing::make(std::int64_t count, DType type) {
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(type);
  void* memory = nullptr;
  if (cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  memory_.push_back(memory);
  std::vector<std::byte> pattern(std::min<std::size_t>(bytes, std::size_t{1} << 18));
  for (std::size_t i = 0; i < pattern.size() / size_of(type); ++i) {
    const philox::Block block = philox::block(1, philox::Use::synthesis, i, 0);
    const float value = philox::uniform(block.v[0]) * 2 - 1;
    if (type == DType::bf16) {
      reinterpret_cast<Bf16*>(pattern.data())[i] = to_bf16(value);
    } else {
      reinterpret_cast<float*>(pattern.data())[i] = value;
    }
  }
  for (std::size_t at = 0; at < bytes; at += pattern.size()) {
    cuda_check(cudaMemcpyAsync(static_cast<std::byte*>(memory) + at, pattern.data(),
                               std::min(pattern.size(), bytes - at), cudaMemcpyHostToDevice,
                               context_.stream),
               "cudaMemcpyAsync");
  }
  // The pattern must outlive the copies.
  wait_for_stream(context_, context_.stream);
  return memory;
}

std::vector<float> Timing::times(std::size_t count, const std::function<void(std::size_t)>& run,
                                 std::string& failure) {
  std::vector<float> best(count, kNever);
  std::vector<Graph> graphs(count);
  std::vector<int> runs(count, 1);
  uncaptured_.assign(count, {});
  std::vector<std::size_t> good;
  for (std::size_t i = 0; i < count; ++i) {
    check_stop();
    try {
      // The first run loads the kernels, so that the second, timed run does not.
      time([&] { run(i); });
      const float once = time([&] { run(i); });
      runs[i] = runs_at_once(once);
      graphs[i] = capture(
          runs[i], [&] { run(i); }, uncaptured_[i]);
      good.push_back(i);
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  // A failure of the GPU may be reported only now.
  wait_for_stream(context_, context_.stream);
  const auto run_all = [&](std::size_t i) {
    if (graphs[i]) {
      cuda_check(cudaGraphLaunch(graphs[i].get(), context_.stream), "cudaGraphLaunch");
      return;
    }
    for (int k = 0; k < runs[i]; ++k) run(i);
  };
  // Run rounds over all candidates, so that a disturbance does not affect only one of them.
  for (int round = 0; round < kRounds; ++round) {
    for (const std::size_t i : good) {
      best[i] = std::min(best[i], time([&] { run_all(i); }) / static_cast<float>(runs[i]));
    }
  }
  return best;
}

int Timing::runs_at_once(float milliseconds) {
  if (milliseconds * kMaxRuns <= kMilliseconds) return kMaxRuns;
  return std::max(1, static_cast<int>(kMilliseconds / milliseconds));
}

Timing::Graph Timing::capture(int runs, const std::function<void()>& run, std::string& why_not) {
  cuda_check(cudaStreamBeginCapture(context_.stream, cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
  try {
    for (int k = 0; k < runs; ++k) run();
  } catch (const Error& error) {
    why_not = error.what();
  }
  cudaGraph_t graph = nullptr;
  cudaError_t status = cudaStreamEndCapture(context_.stream, &graph);
  cudaGraphExec_t executable = nullptr;
  if (status == cudaSuccess && why_not.empty()) {
    status = cudaGraphInstantiate(&executable, graph, 0);
    if (status == cudaSuccess) status = cudaGraphUpload(executable, context_.stream);
  }
  if (graph) cudaGraphDestroy(graph);
  Graph owner(executable);
  if (status != cudaSuccess) {
    cudaGetLastError();
    if (why_not.empty()) {
      why_not =
          fmt::format("{}: runs cannot be captured: {}", context_.name, cudaGetErrorString(status));
    }
  }
  if (!why_not.empty()) owner.reset();
  return owner;
}

float Timing::time(const std::function<void()>& work) {
  cuda_check(cudaEventRecord(begin_.get(), context_.stream), "cudaEventRecord");
  work();
  cuda_check(cudaEventRecord(end_.get(), context_.stream), "cudaEventRecord");
  wait_for_event(context_, end_.get());
  float milliseconds = 0;
  cuda_check(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "cudaEventElapsedTime");
  return milliseconds;
}

}  // namespace dpt
