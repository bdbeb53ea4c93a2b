// The state of the emulation: devices, memory, streams, events, captures and graphs; and the
// queueing and running of work.
//
// One lock guards everything, kernels included. Work waits in its stream's queue until a host
// thread needs its result. That thread then runs the work and holds the lock, except around host
// functions.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "emulation/control.h"
#include "settings.h"

struct CUstream_st {};
struct CUevent_st {};
struct CUgraph_st {};
struct CUgraphNode_st {};
struct CUgraphExec_st {};

namespace emulation {

/// Bytes of shared memory: the default and the opt-in limit of a kernel, and the limit of a
/// processor.
constexpr int kSharedPerBlock = 48 << 10, kSharedOptIn = 227 << 10, kSharedPerProcessor = 228 << 10;

using Lock = std::unique_lock<std::mutex>;
using Clock = std::chrono::steady_clock;

struct Stream;
struct Capture;

/// A position in a stream's queue, after the first `count` items.
struct Point {
  std::shared_ptr<Stream> stream;
  std::uint64_t count = 0;
};

/// One item of queued work, or a node of a graph, which runs many times.
struct Work {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  int device = 0;
  /// Runs the work. Returns cudaSuccess, or the error to report.
  std::function<cudaError_t(Lock&)> run;
  Point wait;  ///< point that must be reached first, if it has a stream
};

struct Node : CUgraphNode_st {
  Work work;
  std::vector<std::size_t> after;  ///< nodes that must run before this one
};

struct Stream : CUstream_st {
  int device = 0;
  unsigned flags = 0;
  bool legacy = false;
  std::deque<Work> queue;
  std::uint64_t queued = 0, done = 0;
  bool running = false;  ///< true while a host function of the stream runs, without the lock
  std::uint64_t queried =
      ~std::uint64_t{0};  ///< value of `queued` at the last query that was not ready
  std::shared_ptr<Capture> capture;
  std::vector<std::size_t> last;  ///< nodes that the next captured one depends on
  bool blocking() const { return !legacy && !(flags & cudaStreamNonBlocking); }
};

struct Capture {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  Stream* origin = nullptr;
  bool invalid = false;
  std::vector<std::shared_ptr<Node>> nodes;
};

struct Event : CUevent_st {
  int device = 0;
  unsigned flags = 0;
  bool recorded = false, queried = false;
  Point point;
  std::shared_ptr<Clock::time_point> time;  ///< time at which the record ran
  std::weak_ptr<Capture> capture;           ///< capture that holds the record, after `last`
  bool captured = false;
  std::vector<std::size_t> last;
};

struct Graph : CUgraph_st {
  std::vector<std::shared_ptr<Node>> nodes;
};
struct GraphExec : CUgraphExec_st {
  std::vector<std::shared_ptr<Node>> nodes;
};

struct Device {
  cudaError_t lost = cudaSuccess;  ///< error after which every use of the device fails
  bool hangs = false;              ///< runs no more work and reports no error
  std::size_t used = 0;
  std::set<int> peers;  ///< devices whose memory its kernels may use
  std::shared_ptr<Stream> legacy;
};

constexpr int kHost = -1;
struct Allocation {
  std::size_t bytes = 0;
  int device = kHost;
  bool freed = false;  ///< kept for a while, to detect later uses
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Device> devices;
  std::map<cudaStream_t, std::shared_ptr<Stream>> streams;
  std::map<cudaEvent_t, std::shared_ptr<Event>> events;
  std::map<cudaGraph_t, std::shared_ptr<Graph>> graphs;
  std::map<cudaGraphExec_t, std::shared_ptr<GraphExec>> execs;
  std::map<std::uintptr_t, Allocation> memory;  ///< by address
  std::deque<std::uintptr_t> freed;
  std::size_t freed_bytes = 0;
  std::vector<std::shared_ptr<Capture>> captures;
  std::map<const void*, int> dynamic_shared;  ///< sizes that cudaFuncSetAttribute allowed
  std::size_t work_done = 0;
  GraphShape last_graph;
  std::string last_fault;
};
State& state();

/// State of a host thread.
struct ThreadState {
  int device = 0;
  cudaError_t last_error = cudaSuccess;
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  bool in_host_function = false;
};
ThreadState& this_thread();

enum class Needs {
  nothing,  ///< works without a device
  device,
  context,    ///< fails once the current device is lost
  no_capture  ///< also forbidden during a capture that restricts this thread
};

/// Wraps every call: takes the lock, counts the call for requested failures, checks `needs`, and
/// keeps the error for cudaGetLastError.
cudaError_t api(const char* name, Needs needs, const std::function<cudaError_t(Lock&)>& body);

/// Returns the stream, or null if the handle is not a stream. A null handle is the current device's
/// legacy stream.
std::shared_ptr<Stream> find_stream(cudaStream_t handle);
std::shared_ptr<Event> find_event(cudaEvent_t handle);

/// Queues the work, or adds it to the graph that the stream captures.
cudaError_t enqueue(Stream& stream, Work work);
/// Runs a stream's queue up to a point, and all work for which the queue waits. Returns false if a
/// hanging device prevents this.
bool run_until(Lock& lock, const Point& point);
bool run_stream(Lock& lock, const std::shared_ptr<Stream>& stream);
bool run_device(Lock& lock, int device);
/// Runs one item of work now, unless its device is lost. Returns false if the item has not ended
/// because a device hangs.
bool run_work(Lock& lock, const Work& work);
/// Ends the process with a message if `done` is false: a call that would wait forever on a GPU is a
/// mistake of the program.
void require_done(bool done, const char* call);

/// Marks a device as lost; keeps the reason and prints it.
cudaError_t lose_device(int device, cudaError_t error, const std::string& why);
bool loses_device(cudaError_t error);
/// Makes a device hang. Returns the status of its unfinished work.
cudaError_t hang_device(int device);

/// Returns the allocation that holds the address or ends directly before it, or null. Stores the
/// allocation's address in `base`.
const Allocation* find_memory(const void* pointer, std::uintptr_t* base = nullptr);
/// Returns true if one live allocation of the device (kHost: pinned memory) contains the whole
/// range.
bool in_memory(const void* pointer, std::size_t bytes, int device);
void forget_all_memory();
/// Describes an allocation whose borders were overwritten. Returns an empty string if all are
/// intact.
std::string damaged_memory();

cudaError_t error_by_name(const std::string& name);

}  // namespace emulation
