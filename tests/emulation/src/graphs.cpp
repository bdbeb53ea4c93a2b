// Captures streams into graphs, and runs the graphs.
#include <algorithm>

#include "state.h"

namespace emulation {
namespace {

/// Returns true if the next work of `stream` would depend on every node of the capture.
bool all_joined(const Capture& capture, const Stream& stream) {
  std::vector<bool> seen(capture.nodes.size());
  std::vector<std::size_t> open = stream.last;
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    if (seen[node]) continue;
    seen[node] = true;
    open.insert(open.end(), capture.nodes[node]->after.begin(), capture.nodes[node]->after.end());
  }
  return std::find(seen.begin(), seen.end(), false) == seen.end();
}

void leave_capture(const std::shared_ptr<Capture>& capture) {
  for (const auto& [handle, stream] : state().streams) {
    if (stream->capture != capture) continue;
    stream->capture = nullptr;
    stream->last.clear();
  }
  std::erase(state().captures, capture);
}

/// Runs each node after those that it depends on; the order setting chooses among the nodes that
/// are ready.
void run_graph(Lock& lock, const std::vector<std::shared_ptr<Node>>& nodes) {
  std::vector<std::size_t> missing(nodes.size());
  std::vector<std::vector<std::size_t>> before(nodes.size());
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    missing[i] = nodes[i]->after.size();
    for (const std::size_t other : nodes[i]->after) before[other].push_back(i);
    if (missing[i] == 0) ready.push_back(i);
  }
  const Order order = settings().order;
  std::uint64_t draw = mix(order.seed ^ mix(state().work_done));
  while (!ready.empty()) {
    auto next = std::min_element(ready.begin(), ready.end());
    if (order.kind == OrderKind::reverse) next = std::max_element(ready.begin(), ready.end());
    if (order.kind == OrderKind::random) {
      draw = mix(draw);
      next = ready.begin() + static_cast<std::ptrdiff_t>(draw % ready.size());
    }
    const std::size_t node = *next;
    ready.erase(next);
    run_work(lock, nodes[node]->work);
    for (const std::size_t later : before[node]) {
      if (--missing[later] == 0) ready.push_back(later);
    }
  }
}

/// Returns the shape of a graph. REQUIRES: each node comes after those that it depends on.
GraphShape shape_of(const std::vector<std::shared_ptr<Node>>& nodes) {
  GraphShape shape;
  shape.nodes = nodes.size();
  std::vector<std::size_t> path;
  for (const std::shared_ptr<Node>& node : nodes) {
    std::size_t longest = 0;
    for (const std::size_t before : node->after) longest = std::max(longest, path.at(before));
    path.push_back(longest + 1);
    shape.longest_path = std::max(shape.longest_path, path.back());
  }
  return shape;
}

}  // namespace
}  // namespace emulation

using namespace emulation;

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return api("cudaStreamBeginCapture", Needs::context, [&](Lock&) {
    const auto stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->legacy) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture) return cudaErrorIllegalState;
    if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed) {
      return cudaErrorInvalidValue;
    }
    const auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream.get();
    stream->capture = capture;
    stream->last.clear();
    state().captures.push_back(capture);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return api("cudaStreamEndCapture", Needs::device, [&](Lock&) {
    const auto stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (!graph) return cudaErrorInvalidValue;
    *graph = nullptr;
    const auto capture = stream->capture;
    if (!capture) return cudaErrorIllegalState;
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != std::this_thread::get_id()) {
      return cudaErrorStreamCaptureWrongThread;
    }
    if (capture->origin != stream.get()) {
      capture->invalid = true;
      return cudaErrorStreamCaptureUnmatched;
    }
    const bool joined = all_joined(*capture, *stream);
    leave_capture(capture);
    if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (!joined) return cudaErrorStreamCaptureUnjoined;
    const auto made = std::make_shared<Graph>();
    made->nodes = capture->nodes;
    *graph = made.get();
    state().graphs[*graph] = made;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return api("cudaStreamIsCapturing", Needs::device, [&](Lock&) {
    const auto stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (!status) return cudaErrorInvalidValue;
    *status = !stream->capture           ? cudaStreamCaptureStatusNone
              : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return api("cudaThreadExchangeStreamCaptureMode", Needs::device, [&](Lock&) {
    if (!mode) return cudaErrorInvalidValue;
    std::swap(*mode, this_thread().capture_mode);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return api("cudaGraphInstantiate", Needs::context, [&](Lock&) {
    const auto found = state().graphs.find(graph);
    if (!exec || found == state().graphs.end()) return cudaErrorInvalidValue;
    const auto made = std::make_shared<GraphExec>();
    made->nodes = found->second->nodes;
    *exec = made.get();
    state().execs[*exec] = made;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  return api("cudaGraphLaunch", Needs::context, [&](Lock&) {
    const auto found = state().execs.find(exec);
    const auto stream = find_stream(handle);
    if (found == state().execs.end()) return cudaErrorInvalidValue;
    if (!stream) return cudaErrorInvalidResourceHandle;
    state().last_graph = shape_of(found->second->nodes);
    Work work;
    work.type = cudaGraphNodeTypeGraph;
    work.run = [graph = found->second](Lock& lock) {
      run_graph(lock, graph->nodes);
      return cudaSuccess;
    };
    return enqueue(*stream, std::move(work));
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t handle) {
  return api("cudaGraphUpload", Needs::context, [&](Lock&) {
    if (!state().execs.contains(exec)) return cudaErrorInvalidValue;
    const auto stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    return stream->capture ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return api("cudaGraphDestroy", Needs::device, [&](Lock&) {
    return state().graphs.erase(graph) > 0 ? cudaSuccess : cudaErrorInvalidValue;
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return api("cudaGraphExecDestroy", Needs::device, [&](Lock&) {
    return state().execs.erase(exec) > 0 ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  return api("cudaGraphGetNodes", Needs::device, [&](Lock&) {
    const auto found = state().graphs.find(graph);
    if (found == state().graphs.end() || !count) return cudaErrorInvalidValue;
    const auto& all = found->second->nodes;
    if (nodes) {
      for (std::size_t i = 0; i < *count; ++i) nodes[i] = i < all.size() ? all[i].get() : nullptr;
      *count = std::min(*count, all.size());
    } else {
      *count = all.size();
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return api("cudaGraphNodeGetType", Needs::device, [&](Lock&) {
    if (!type) return cudaErrorInvalidValue;
    for (const auto& [handle, graph] : state().graphs) {
      for (const auto& each : graph->nodes) {
        if (each.get() != node) continue;
        *type = each->work.type;
        return cudaSuccess;
      }
    }
    return cudaErrorInvalidValue;
  });
}
