// A request to stop while a run is still starting. Loops that may take seconds before the first
// step (listing, reading, decoding, waiting for processes, timing kernels) poll for it.
#pragma once

#include <atomic>
#include <exception>

namespace dpt {

/// Thrown by check_stop. Not an Error, because nothing has failed.
class StopRequested : public std::exception {
 public:
  const char* what() const noexcept override { return "stopped on request"; }
};

namespace stop_request {
/// True once a stop was requested. Set by a signal handler (engine/processes/stop.cpp), never
/// cleared.
inline std::atomic<bool> is_requested{false};
/// True from the start of `dpt train` to its first step. Meanwhile, a stop request ends the work
/// immediately.
inline std::atomic<bool> is_starting{false};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");
}  // namespace stop_request

/// Throws StopRequested if a stop is requested before training has begun. Later it does nothing,
/// because the trainer decides where to stop. Call it on any thread whose exceptions are passed on.
/// It costs two loads.
inline void check_stop() {
  if (stop_request::is_starting.load(std::memory_order_relaxed) &&
      stop_request::is_requested.load(std::memory_order_relaxed)) {
    throw StopRequested();
  }
}

}  // namespace dpt
