// How tests steer the emulation. None of it exists in CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace emulation {

/// In which order threads run between two barriers, blocks in a grid, nodes in a graph that do not
/// depend on each other, and streams that a device-wide wait drains. The results of a correct
/// program do not depend on it. At start: DPT_EMULATED_ORDER=forward|reverse|random:SEED.
enum class OrderKind : std::uint8_t { forward, reverse, random };
struct Order {
  OrderKind kind = OrderKind::forward;
  std::uint64_t seed = 0;
};
void set_order(Order order);
Order order();

/// A machine with `count` devices of `bytes` memory each, as after a fresh start of the process:
/// everything that exists becomes invalid. At start: DPT_EMULATED_GPUS (2), DPT_EMULATED_MEMORY
/// (bytes, 1 GiB). Their compute capability: DPT_EMULATED_COMPUTE (9.0).
void set_devices(int count, std::size_t bytes = std::size_t{1} << 30);

/// The number of multiprocessors each device claims to have (8 at start). The results of a correct
/// program do not depend on it.
void set_multiprocessors(int count);

/// Makes a coming call fail once. `what` is "call:number:error", as "cudaGraphLaunch:5:
/// cudaErrorLaunchFailure": the fifth call from now. "call@1:..." counts the calls for device 1
/// only. "kernel:number:error" lets the launch succeed and the kernel fail when it runs. Errors
/// after which a device is lost stay with it, as in CUDA. Throws std::invalid_argument if it cannot
/// be read. At start: DPT_EMULATED_FAIL, several separated by commas.
void fail(const std::string& what);
void clear_failures();

/// What stands in for cuDNN: it works (at start), is not installed, fails when it makes plans, or
/// makes plans that fail when they are run.
enum class Cudnn : std::uint8_t { works, absent, fails_to_plan, fails_to_run };
void set_cudnn(Cudnn cudnn);
Cudnn cudnn();

/// The explanation of the last fault of a kernel, such as a missing barrier; empty if none. It is
/// also written to stderr.
std::string last_fault();

/// Kernels and copies that have run, and those that wait in streams.
std::size_t work_done();
std::size_t work_waiting();

/// Bytes of device memory in use.
std::size_t memory_in_use(int device);

}  // namespace emulation
