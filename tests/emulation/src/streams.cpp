// Streams and events.
#include "state.h"

namespace emulation {
namespace {

bool is_done(const Event& event) {
  return !event.recorded || event.point.stream->done >= event.point.count;
}

/// Refuses an event whose record was captured. The record belongs to the graph, and a query
/// invalidates the capture.
cudaError_t refuse_captured(const Event& event) {
  if (!event.captured) return cudaSuccess;
  if (const auto capture = event.capture.lock()) capture->invalid = true;
  return cudaErrorCapturedEvent;
}

cudaError_t lost(int device) {
  return state().devices.at(device).lost;
}

/// Refuses a stream that is capturing.
cudaError_t refuse_capturing(const Stream& stream) {
  if (!stream.capture) return cudaSuccess;
  stream.capture->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

/// Makes a stream wait for a captured event. A stream that was not capturing joins the capture.
cudaError_t wait_captured(Stream& stream, const Event& event) {
  const auto capture = event.capture.lock();
  if (!capture) return cudaErrorCapturedEvent;  // The capture has ended.
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (stream.legacy) {
    capture->invalid = true;
    return cudaErrorStreamCaptureImplicit;
  }
  if (stream.capture && stream.capture != capture) {
    stream.capture->invalid = capture->invalid = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (!stream.capture) {
    stream.capture = capture;
    stream.last.clear();
  }
  for (const std::size_t node : event.last) {
    bool known = false;
    for (const std::size_t other : stream.last) known = known || other == node;
    if (!known) stream.last.push_back(node);
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace emulation

using namespace emulation;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return api("cudaStreamCreateWithFlags", Needs::context, [&](Lock&) {
    if (!stream || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    const auto made = std::make_shared<Stream>();
    made->device = this_thread().device;
    made->flags = flags;
    *stream = made.get();
    state().streams[*stream] = made;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return api("cudaDeviceGetStreamPriorityRange", Needs::context, [&](Lock&) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return api("cudaStreamDestroy", Needs::device, [&](Lock& lock) {
    const auto stream = handle ? find_stream(handle) : nullptr;
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) {
      stream->capture->invalid = true;
      if (stream->capture->origin == stream.get()) std::erase(state().captures, stream->capture);
    }
    run_stream(lock, stream);
    state().streams.erase(handle);
    return lost(stream->device);
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return api("cudaStreamSynchronize", Needs::no_capture, [&](Lock& lock) {
    const auto stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = refuse_capturing(*stream); error != cudaSuccess) return error;
    require_done(run_stream(lock, stream), "cudaStreamSynchronize");
    return lost(stream->device);
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return api("cudaStreamQuery", Needs::no_capture, [&](Lock& lock) {
    const auto stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = refuse_capturing(*stream); error != cudaSuccess) return error;
    // The first query finds the stream busy and the second one finds it done, so that callers see
    // both answers.
    if (stream->done != stream->queued && stream->queried != stream->queued) {
      stream->queried = stream->queued;
      return cudaErrorNotReady;
    }
    if (!run_stream(lock, stream)) return cudaErrorNotReady;
    return lost(stream->device);
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned flags) {
  return api("cudaStreamWaitEvent", Needs::context, [&](Lock&) {
    const auto stream = find_stream(handle);
    const auto event = find_event(event_handle);
    if (!stream || !event) return cudaErrorInvalidResourceHandle;
    if (flags != 0) return cudaErrorInvalidValue;
    if (event->captured) return wait_captured(*stream, *event);
    if (stream->capture) {
      if (!event->recorded) return cudaSuccess;
      stream->capture->invalid = true;
      return cudaErrorStreamCaptureIsolation;
    }
    if (is_done(*event)) return cudaSuccess;
    Work work;
    work.wait = event->point;
    return enqueue(*stream, std::move(work));
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* user_data) {
  return api("cudaLaunchHostFunc", Needs::context, [&](Lock&) {
    const auto stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (!function) return cudaErrorInvalidValue;
    Work work;
    work.type = cudaGraphNodeTypeHost;
    work.run = [=](Lock& lock) {
      // The lock is released: the host function may wait for another host thread.
      lock.unlock();
      this_thread().in_host_function = true;
      function(user_data);
      this_thread().in_host_function = false;
      lock.lock();
      return cudaSuccess;
    };
    return enqueue(*stream, std::move(work));
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return api("cudaEventCreateWithFlags", Needs::context, [&](Lock&) {
    if (!event || flags > 7) return cudaErrorInvalidValue;
    const auto made = std::make_shared<Event>();
    made->device = this_thread().device;
    made->flags = flags;
    *event = made.get();
    state().events[*event] = made;
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return api("cudaEventDestroy", Needs::device, [&](Lock&) {
    return state().events.erase(event) > 0 ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  return api("cudaEventRecord", Needs::context, [&](Lock&) {
    const auto event = find_event(handle);
    const auto stream = find_stream(stream_handle);
    if (!event || !stream || event->device != stream->device) {
      return cudaErrorInvalidResourceHandle;
    }
    if (stream->capture) {
      if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
      event->captured = true;
      event->capture = stream->capture;
      event->last = stream->last;
      return cudaSuccess;
    }
    const auto time = std::make_shared<Clock::time_point>();
    Work work;
    work.run = [time](Lock&) {
      --state().work_done;  // A record does not count as work.
      *time = Clock::now();
      return cudaSuccess;
    };
    const cudaError_t error = enqueue(*stream, std::move(work));
    if (error != cudaSuccess) return error;
    event->captured = event->queried = false;
    event->recorded = true;
    event->time = time;
    event->point = {stream, stream->queued};
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return api("cudaEventSynchronize", Needs::no_capture, [&](Lock& lock) {
    const auto event = find_event(handle);
    if (!event) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = refuse_captured(*event); error != cudaSuccess) return error;
    if (event->recorded) require_done(run_until(lock, event->point), "cudaEventSynchronize");
    return lost(event->device);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return api("cudaEventQuery", Needs::no_capture, [&](Lock& lock) {
    const auto event = find_event(handle);
    if (!event) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = refuse_captured(*event); error != cudaSuccess) return error;
    if (!is_done(*event) && !event->queried) {
      event->queried = true;
      return cudaErrorNotReady;
    }
    if (event->recorded && !run_until(lock, event->point)) return cudaErrorNotReady;
    return lost(event->device);
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return api("cudaEventElapsedTime", Needs::context, [&](Lock&) {
    const auto first = find_event(start), last = find_event(end);
    if (!milliseconds) return cudaErrorInvalidValue;
    if (!first || !last || first->device != last->device) return cudaErrorInvalidResourceHandle;
    for (const auto& event : {first, last}) {
      if (const cudaError_t error = refuse_captured(*event); error != cudaSuccess) return error;
      if (!event->recorded || (event->flags & cudaEventDisableTiming)) {
        return cudaErrorInvalidResourceHandle;
      }
    }
    if (!is_done(*first) || !is_done(*last)) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(*last->time - *first->time).count();
    return cudaSuccess;
  });
}
