#include "tests/probes/probes.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>

#include "kernels/base/error.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/launch.h"

namespace dpt::probes {
namespace {

// A chain of this many kernels is about one step of LeNet. The longer chain gives the cost of a
// dependency as a slope, without the cost of launching the graph.
constexpr int kShort = 20, kLong = 200;
constexpr std::size_t kSmallCopy = 4096;  // Size of a step's scalars, indices and sums.

/// Lets the next kernel start and waits for the previous one. Without the attribute at launch,
/// neither has an effect.
__device__ inline void let_next_start_and_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
#endif
}

__global__ void empty() {}
__global__ void empty_dependent() {
  let_next_start_and_wait();
}

/// Adds 1 to the number that the previous launch wrote. If a launch does not wait for the previous
/// one, an increment is lost.
__global__ void count_up(int* number) {
  let_next_start_and_wait();
  if (blockIdx.x == 0 && threadIdx.x == 0) *number += 1;
}

/// Reads a number from host memory and writes one there.
__global__ void through_host_memory(const int* from, int* to) {
  if (threadIdx.x == 0) *to = *from + 1;
}

/// Keeps the stream busy for about `cycles` clock cycles.
__global__ void spin(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

double now_us() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(since).count();
}

class Stream {
 public:
  Stream() {
    cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }
  void wait() const { cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { cuda_check(cudaEventCreate(&event_), "cudaEventCreate"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(event_); }
  void record(const Stream& stream) const {
    cuda_check(cudaEventRecord(event_, stream.get()), "cudaEventRecord");
  }
  double us_since(const Event& begin) const {
    float milliseconds = 0;
    cuda_check(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "cudaEventElapsedTime");
    return 1000.0 * milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes) {
    cuda_check(cudaMalloc(&memory_, bytes), "cudaMalloc");
    cuda_check(cudaMemset(memory_, 0, bytes), "cudaMemset");
    // The fill is in the legacy stream, for which the probes' stream does not wait.
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes() { cudaFree(memory_); }
  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

/// Page-locked host memory that the device can access.
class HostBytes {
 public:
  explicit HostBytes(std::size_t bytes) {
    cuda_check(cudaHostAlloc(&memory_, bytes, cudaHostAllocMapped), "cudaHostAlloc");
    std::fill_n(static_cast<unsigned char*>(memory_), bytes, static_cast<unsigned char>(0));
  }
  HostBytes(const HostBytes&) = delete;
  HostBytes& operator=(const HostBytes&) = delete;
  ~HostBytes() { cudaFreeHost(memory_); }
  void* get() const { return memory_; }
  int* on_device() const {
    void* pointer = nullptr;
    cuda_check(cudaHostGetDevicePointer(&pointer, memory_, 0), "cudaHostGetDevicePointer");
    return static_cast<int*>(pointer);
  }

 private:
  void* memory_ = nullptr;
};

/// A graph of the operations that `work` enqueues.
class Graph {
 public:
  Graph(const Stream& stream, const std::function<void()>& work) {
    cuda_check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture");
    work();
    cudaGraph_t graph = nullptr;
    cuda_check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    cuda_check(status, "cudaGraphInstantiate");
    cuda_check(cudaGraphUpload(executable_, stream.get()), "cudaGraphUpload");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { cudaGraphExecDestroy(executable_); }
  void launch(const Stream& stream) const {
    cuda_check(cudaGraphLaunch(executable_, stream.get()), "cudaGraphLaunch");
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

/// Blocks and threads of every kernel of a chain.
struct Shape {
  const char* name;
  unsigned blocks, threads;
};

class Probes {
 public:
  Probes(const Options& options, Results& results) : options_(options), results_(results) {}

  void run() {
    load_kernels();
    check_dependencies();
    const std::array<Shape, 2> shapes = {
        Shape{"1 block of 32 threads", 1, 32},
        Shape{"a block of 256 threads per multiprocessor",
              static_cast<unsigned>(results_.multiprocessors), 256}};
    graphs(shapes[0], results_.edge_us, results_.programmatic_edge_us);
    graphs(shapes[1], results_.full_edge_us, results_.full_programmatic_edge_us);
    launches(shapes[1]);
    between_graphs(shapes[1]);
    round_trip();
    bandwidths();
  }

 private:
  template <class... Params, class... Args>
  void start(void (*kernel)(Params...), const Shape& shape, bool programmatic, Args... args) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(shape.blocks);
    config.blockDim = dim3(shape.threads);
    config.stream = stream_.get();
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = programmatic ? 1 : 0;
    cuda_check(cudaLaunchKernelEx(&config, kernel, args...), "a kernel launch");
  }
  void chain(int length, const Shape& shape, bool programmatic) {
    for (int i = 0; i < length; ++i) {
      start(programmatic ? empty_dependent : empty, shape, programmatic);
    }
  }

  /// Times `enqueue`, which enqueues one call. The stream is kept busy until all calls of a repeat
  /// are enqueued, so that the time on the device excludes that of the host.
  const Timing& time(const std::string& name, const std::function<void()>& enqueue) {
    const auto enqueue_all = [&] {
      const double begin = now_us();
      for (int i = 0; i < options_.calls; ++i) enqueue();
      return now_us() - begin;
    };
    enqueue_all();
    stream_.wait();
    // Twice the host's time in clock cycles, with a minimum that ensures that the host is ahead.
    const double host_us = enqueue_all();
    stream_.wait();
    const double cycles = (2 * host_us + 300) * results_.clock_khz / 1000.0;
    std::vector<double> device, host;
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      launch(spin, dim3(1), dim3(1), 0, stream_.get(), static_cast<long long>(cycles));
      begin_.record(stream_);
      host.push_back(enqueue_all() / options_.calls);
      end_.record(stream_);
      stream_.wait();
      device.push_back(end_.us_since(begin_) / options_.calls);
    }
    results_.timings.push_back({name, spread(device), spread(host)});
    return results_.timings.back();
  }

  /// Launches each kernel once: CUDA loads a kernel at its first launch, which must not be inside a
  /// capture or a measurement.
  void load_kernels() {
    const HostBytes numbers(2 * sizeof(int));
    const Shape shape = {"", 1, 32};
    start(empty, shape, false);
    start(empty_dependent, shape, results_.programmatic);
    launch(through_host_memory, dim3(1), dim3(32), 0, stream_.get(), numbers.on_device(),
           numbers.on_device() + 1);
    launch(spin, dim3(1), dim3(1), 0, stream_.get(), 1LL);
    stream_.wait();
  }

  /// Checks that programmatic launches keep the promised order; otherwise their times mean nothing.
  void check_dependencies() {
    const DeviceBytes number(sizeof(int));
    const Shape shape = {"", 4, 32};
    const auto add = [&] {
      for (int i = 0; i < kLong; ++i) {
        start(count_up, shape, results_.programmatic, static_cast<int*>(number.get()));
      }
    };
    add();
    Graph(stream_, add).launch(stream_);
    int found = 0;
    cuda_check(
        cudaMemcpyAsync(&found, number.get(), sizeof(found), cudaMemcpyDeviceToHost, stream_.get()),
        "cudaMemcpyAsync");
    stream_.wait();
    if (found != 2 * kLong) {
      fail(ErrorKind::unexpected, "a chain of {} kernels counted to {}: a dependency was lost",
           2 * kLong, found);
    }
  }

  void graphs(const Shape& shape, double& edge_us, double& programmatic_edge_us) {
    for (const bool programmatic : {false, true}) {
      if (programmatic && !results_.programmatic) continue;
      std::array<double, 2> median = {};
      for (const int length : {1, kShort, kLong}) {
        const Graph graph(stream_, [&] { chain(length, shape, programmatic); });
        const Timing& timing = time(fmt::format("graph of {} kernels{}, {}", length,
                                                programmatic ? ", programmatic" : "", shape.name),
                                    [&] { graph.launch(stream_); });
        if (length != 1) median[length == kLong ? 1 : 0] = timing.device_us.median;
      }
      (programmatic ? programmatic_edge_us : edge_us) = (median[1] - median[0]) / (kLong - kShort);
    }
  }

  void launches(const Shape& shape) {
    for (const bool programmatic : {false, true}) {
      if (programmatic && !results_.programmatic) continue;
      time(fmt::format("launch by stream{}, {}", programmatic ? ", programmatic" : "", shape.name),
           [&] { start(programmatic ? empty_dependent : empty, shape, programmatic); });
    }
  }

  void between_graphs(const Shape& shape) {
    const DeviceBytes on_device(2 * kSmallCopy);
    const HostBytes in(kSmallCopy), out(kSmallCopy);
    auto* const to = static_cast<unsigned char*>(on_device.get());
    const auto copy_in = [&] {
      cuda_check(cudaMemcpyAsync(to, in.get(), kSmallCopy, cudaMemcpyHostToDevice, stream_.get()),
                 "cudaMemcpyAsync");
    };
    const auto copy_out = [&] {
      cuda_check(cudaMemcpyAsync(out.get(), to + kSmallCopy, kSmallCopy, cudaMemcpyDeviceToHost,
                                 stream_.get()),
                 "cudaMemcpyAsync");
    };
    const auto step = [&] { chain(kShort, shape, false); };
    const std::string of = fmt::format("graph of {} kernels", kShort);
    const Graph graph(stream_, step);
    const auto launch_graph = [&] { graph.launch(stream_); };
    time("step: " + of, launch_graph);
    time("step: copy to the device, " + of, [&] {
      copy_in();
      launch_graph();
    });
    time(fmt::format("step: {}, copy to the host", of), [&] {
      launch_graph();
      copy_out();
    });
    time(fmt::format("step: copy to the device, {}, copy to the host", of), [&] {
      copy_in();
      launch_graph();
      copy_out();
    });
    const Graph with_copies(stream_, [&] {
      copy_in();
      step();
      copy_out();
    });
    time(fmt::format("step: {} with both copies inside", of), [&] { with_copies.launch(stream_); });
    int* const from_host = in.on_device();
    int* const to_host = out.on_device();
    const Graph mapped(stream_, [&] {
      chain(kShort - 1, shape, false);
      launch(through_host_memory, dim3(1), dim3(32), 0, stream_.get(), from_host, to_host);
    });
    time(fmt::format("step: {}, the last reads and writes the host's memory", of),
         [&] { mapped.launch(stream_); });
  }

  void round_trip() {
    const Graph graph(stream_, [&] { start(empty, {"", 1, 32}, false); });
    std::vector<double> times;
    for (int i = 0; i < options_.calls + 3; ++i) {
      const double begin = now_us();
      graph.launch(stream_);
      stream_.wait();
      if (i >= 3) times.push_back(now_us() - begin);
    }
    results_.round_trip_us = spread(times).median;
  }

  void bandwidth(const std::string& name, std::size_t bytes, double counted,
                 const std::function<void()>& copy) {
    constexpr int kCopies = 5;
    std::vector<double> rates;
    for (int repeat = 0; repeat <= options_.repeats; ++repeat) {
      begin_.record(stream_);
      for (int i = 0; i < kCopies; ++i) copy();
      end_.record(stream_);
      stream_.wait();
      const double us = std::max(end_.us_since(begin_), 1e-3);
      const double moved = counted * kCopies * static_cast<double>(bytes);
      if (repeat > 0) rates.push_back(moved / us / 1e3);
    }
    results_.bandwidths.push_back({name, spread(rates)});
  }

  void bandwidths() {
    std::size_t available = 0, total = 0;
    cuda_check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
    const std::size_t bytes = std::min(options_.bytes, available / 4);
    const DeviceBytes a(bytes), b(bytes);
    const HostBytes host(bytes / 4);
    const auto copier = [&](void* to, const void* from, std::size_t count, cudaMemcpyKind kind) {
      return [=, this] {
        cuda_check(cudaMemcpyAsync(to, from, count, kind, stream_.get()), "cudaMemcpyAsync");
      };
    };
    bandwidth("copy on the device, bytes read and written", bytes, 2,
              copier(b.get(), a.get(), bytes, cudaMemcpyDeviceToDevice));
    bandwidth("copy to the device", bytes / 4, 1,
              copier(a.get(), host.get(), bytes / 4, cudaMemcpyHostToDevice));
    bandwidth("copy to the host", bytes / 4, 1,
              copier(host.get(), a.get(), bytes / 4, cudaMemcpyDeviceToHost));
  }

  const Options& options_;
  Results& results_;
  Stream stream_;
  Event begin_, end_;
};

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  cuda_check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

Results run(const Options& options) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count <= options.device) {
    fail(ErrorKind::device, "no GPU number {}: CUDA finds {} ({})", options.device, count,
         cudaGetErrorString(status));
  }
  cuda_check(cudaSetDevice(options.device), "cudaSetDevice");
  cudaDeviceProp properties = {};
  cuda_check(cudaGetDeviceProperties(&properties, options.device), "cudaGetDeviceProperties");
  Results results;
  results.device = properties.name;
  results.multiprocessors = properties.multiProcessorCount;
  results.l2_bytes = properties.l2CacheSize;
  // CUDA 13 no longer has the clocks among the properties.
  results.clock_khz = attribute(cudaDevAttrClockRate, options.device);
  results.memory_clock_khz = attribute(cudaDevAttrMemoryClockRate, options.device);
#ifdef __CUDACC__
  results.programmatic = properties.major >= 9;
#endif
  Probes(options, results).run();
  return results;
}

}  // namespace dpt::probes
