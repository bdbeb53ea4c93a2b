// Runs calls and queued work.
#include "state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace emulation {

State& state() {
  // Never destroyed: host threads may still make calls while the process exits.
  static State& instance = *new State;
  return instance;
}

ThreadState& this_thread() {
  thread_local ThreadState instance;
  return instance;
}

namespace {

/// Returns true if a capture forbids this thread's call, and invalidates the captures concerned.
bool forbidden_by_capture() {
  bool forbidden = false;
  const cudaStreamCaptureMode own = this_thread().capture_mode;
  if (own == cudaStreamCaptureModeRelaxed) return false;
  for (const auto& capture : state().captures) {
    const bool mine = capture->thread == std::this_thread::get_id() &&
                      capture->mode != cudaStreamCaptureModeRelaxed;
    const bool global =
        own == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (mine || global) {
      capture->invalid = true;
      forbidden = true;
    }
  }
  return forbidden;
}

cudaError_t checked(const char* name, Needs needs, Lock& lock,
                    const std::function<cudaError_t(Lock&)>& body) {
  ThreadState& thread = this_thread();
  if (thread.in_host_function) return cudaErrorNotPermitted;
  State& all = state();
  if (needs != Needs::nothing && settings().devices == 0) return cudaErrorNoDevice;
  all.devices.resize(static_cast<std::size_t>(settings().devices));
  if (thread.device >= settings().devices) thread.device = 0;
  if (const auto failure = take_failure(name, thread.device)) {
    const cudaError_t error = error_by_name(*failure);
    return loses_device(error)
               ? lose_device(thread.device, error, fmt::format("asked-for failure of {}", name))
               : error;
  }
  if (needs >= Needs::context && all.devices.at(thread.device).lost != cudaSuccess) {
    // Memory is freed in spite of the failure, so that the accounts are right after a reset.
    if (std::string_view(name).starts_with("cudaFree")) body(lock);
    return all.devices.at(thread.device).lost;
  }
  if (needs == Needs::no_capture && forbidden_by_capture()) {
    return cudaErrorStreamCaptureUnsupported;
  }
  return body(lock);
}

}  // namespace

cudaError_t api(const char* name, Needs needs, const std::function<cudaError_t(Lock&)>& body) {
  Lock lock(state().mutex);
  const cudaError_t error = checked(name, needs, lock, body);
  if (error != cudaSuccess) this_thread().last_error = error;
  return error;
}

std::shared_ptr<Stream> find_stream(cudaStream_t handle) {
  if (handle == nullptr) {
    const int current = this_thread().device;
    Device& device = state().devices.at(current);
    if (!device.legacy) {
      device.legacy = std::make_shared<Stream>();
      device.legacy->device = current;
      device.legacy->legacy = true;
    }
    return device.legacy;
  }
  const auto found = state().streams.find(handle);
  return found == state().streams.end() ? nullptr : found->second;
}

std::shared_ptr<Event> find_event(cudaEvent_t handle) {
  const auto found = state().events.find(handle);
  return found == state().events.end() ? nullptr : found->second;
}

namespace {

void push(Stream& stream, Work work) {
  stream.queue.push_back(std::move(work));
  ++stream.queued;
}

void push_wait(Stream& stream, const std::shared_ptr<Stream>& other) {
  if (other->done == other->queued) return;
  Work wait;
  wait.device = stream.device;
  wait.wait = {other, other->queued};
  push(stream, std::move(wait));
}

/// Makes the next work of `stream` wait. Work of a blocking stream waits for the legacy stream of
/// its device. Work of the legacy stream waits for all blocking streams.
cudaError_t order_with_legacy(Stream& stream) {
  Device& device = state().devices.at(stream.device);
  if (stream.blocking() && device.legacy) push_wait(stream, device.legacy);
  if (!stream.legacy) return cudaSuccess;
  for (const auto& [handle, other] : state().streams) {
    if (other->device != stream.device || !other->blocking()) continue;
    if (other->capture) {
      other->capture->invalid = true;
      return cudaErrorStreamCaptureImplicit;
    }
    push_wait(stream, other);
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t enqueue(Stream& stream, Work work) {
  const cudaError_t lost = state().devices.at(stream.device).lost;
  if (lost != cudaSuccess) return lost;
  work.device = stream.device;
  if (stream.capture) {
    if (stream.capture->invalid) return cudaErrorStreamCaptureInvalidated;
    auto node = std::make_shared<Node>();
    node->work = std::move(work);
    node->after = stream.last;
    stream.last = {stream.capture->nodes.size()};
    stream.capture->nodes.push_back(std::move(node));
    return cudaSuccess;
  }
  if (const cudaError_t error = order_with_legacy(stream); error != cudaSuccess) return error;
  push(stream, std::move(work));
  return cudaSuccess;
}

namespace {

bool hangs(int device) {
  const auto& devices = state().devices;
  return static_cast<std::size_t>(device) < devices.size() && devices[device].hangs;
}

}  // namespace

bool run_work(Lock& lock, const Work& work) {
  if (hangs(work.device)) return false;
  if (work.wait.stream && !run_until(lock, work.wait)) return false;
  if (!work.run) return true;
  const auto lost = [&] {
    const auto& devices = state().devices;
    return static_cast<std::size_t>(work.device) >= devices.size() ||
           devices[work.device].lost != cudaSuccess;
  };
  if (lost()) return true;
  ++state().work_done;
  const cudaError_t error = work.run(lock);
  if (hangs(work.device)) return false;
  if (error != cudaSuccess && !lost()) lose_device(work.device, error, "queued work failed");
  return true;
}

bool run_until(Lock& lock, const Point& point) {
  Stream& stream = *point.stream;
  while (stream.done < point.count && !stream.queue.empty()) {
    if (stream.running) {
      state().changed.wait(lock);
      continue;
    }
    stream.running = true;
    const Work work = std::move(stream.queue.front());
    stream.queue.pop_front();
    const bool done = run_work(lock, work);
    if (done) {
      ++stream.done;
    } else {
      stream.queue.push_front(work);
    }
    stream.running = false;
    state().changed.notify_all();
    if (!done) return false;
  }
  // The last item may still be running on another thread, without the lock.
  while (stream.done < point.count && stream.running) state().changed.wait(lock);
  return stream.done >= point.count;
}

bool run_stream(Lock& lock, const std::shared_ptr<Stream>& stream) {
  return run_until(lock, {stream, stream->queued});
}

bool run_device(Lock& lock, int device) {
  std::vector<std::shared_ptr<Stream>> streams;
  if (state().devices.at(device).legacy) streams.push_back(state().devices[device].legacy);
  for (const auto& [handle, stream] : state().streams) {
    if (stream->device == device) streams.push_back(stream);
  }
  const Order order = settings().order;
  if (order.kind == OrderKind::reverse) std::reverse(streams.begin(), streams.end());
  if (order.kind == OrderKind::random) {
    for (std::size_t i = streams.size(); i > 1; --i) {
      std::swap(streams[i - 1], streams[mix(order.seed ^ mix(state().work_done + i)) % i]);
    }
  }
  bool done = true;
  for (const auto& stream : streams) done = run_stream(lock, stream) && done;
  return done;
}

void require_done(bool done, const char* call) {
  if (done) return;
  fmt::print(stderr, "emulated GPU: {} waits forever for a device that hangs\n", call);
  std::abort();
}

bool loses_device(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return true;
    default:
      return false;
  }
}

cudaError_t hang_device(int device) {
  state().devices.at(device).hangs = true;
  fmt::print(stderr, "emulated cuda:{}: hangs as requested\n", device);
  return cudaErrorNotReady;
}

cudaError_t lose_device(int device, cudaError_t error, const std::string& why) {
  state().devices.at(device).lost = error;
  state().last_fault = why;
  fmt::print(stderr, "emulated cuda:{}: {}: {}\n", device, cudaGetErrorName(error), why);
  return error;
}

}  // namespace emulation
