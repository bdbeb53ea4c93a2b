// Controls of the emulation for tests. None of them exists in CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emulation {

/// Order in which the emulation runs threads between two barriers, blocks of a grid, independent
/// nodes of a graph, and the streams that a device-wide wait drains. The results of a correct
/// program do not depend on it. Initial value: DPT_EMULATED_ORDER=forward|reverse|random:SEED.
enum class OrderKind : std::uint8_t { forward, reverse, random };
struct Order {
  OrderKind kind = OrderKind::forward;
  std::uint64_t seed = 0;
};
void set_order(Order order);
Order order();

/// Sets up a machine with `count` devices of `bytes` memory each, as after a fresh start of the
/// process: all existing objects become invalid. Initial values: DPT_EMULATED_GPUS (2) and
/// DPT_EMULATED_MEMORY (bytes, 1 GiB). DPT_EMULATED_COMPUTE sets the compute capability (9.0).
void set_devices(int count, std::size_t bytes = std::size_t{1} << 30);

/// Sets the number of multiprocessors that each device reports (initially 8). The results of a
/// correct program do not depend on it.
void set_multiprocessors(int count);

/// Makes one later call fail. `what` is "call:number:error":
/// "cudaGraphLaunch:5:cudaErrorLaunchFailure" fails the fifth call from now. "call@1:..." counts
/// only the calls for device 1. "kernel:number:error" lets the launch succeed and the kernel fail
/// when it runs; with the error "hang" the kernel never ends, and its device runs nothing more;
/// with "skip" it does nothing. Errors that lose a device persist, as in CUDA. Throws
/// std::invalid_argument if `what` is malformed. DPT_EMULATED_FAIL sets failures at start,
/// separated by commas.
void fail(const std::string& what);
void clear_failures();

/// Lets cuBLASLt's algorithm `algorithm` compute wrong values on a device (-1: on all); 0 ends
/// this. DPT_EMULATED_WRONG_MATMUL sets it at start.
void set_wrong_matmul(int algorithm, int device = -1);

/// Behaviour of the emulated cuDNN: it works (the initial state), is not installed, fails when it
/// makes plans, or makes plans that fail when they run.
enum class Cudnn : std::uint8_t { works, absent, fails_to_plan, fails_to_run };
void set_cudnn(Cudnn cudnn);
Cudnn cudnn();

/// Returns the explanation of the last fault of a kernel, such as a missing barrier; empty if none.
/// It is also written to stderr.
std::string last_fault();

/// Returns true if the build has the race detector (DPT_EMULATED_RACES).
bool detects_races();
/// Returns the reports of races since the last call, one text each. They are also written to
/// stderr. If nobody takes the reports of a process, it ends with code 66.
std::vector<std::string> take_races();

/// Return the number of kernels and copies that have run, and of those that wait in streams.
std::size_t work_done();
std::size_t work_waiting();

/// Numbers of nodes: of a whole graph, and on its longest path.
struct GraphShape {
  std::size_t nodes = 0, longest_path = 0;
};
/// Returns the shape of the graph that was launched last.
GraphShape last_graph();

/// Returns the bytes of device memory in use.
std::size_t memory_in_use(int device);

}  // namespace emulation
