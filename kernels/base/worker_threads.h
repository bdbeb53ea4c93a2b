// Threads that share one task and can be stopped.
#pragma once

#include <atomic>
#include <functional>
#include <string>

namespace dpt {

/// Runs `body` in `workers` threads (at least one) until all have returned. Meanwhile the calling
/// thread calls `wants_stop` ten times a second, and once at the end. Once that returns true,
/// `stop` is set, `body` must return soon, and the result is false. `what` names the threads in
/// messages ("reader"). Rethrows the first exception of a `body` after all have ended. Also throws
/// as start_thread and check_stop do.
bool run_workers(int workers, const std::string& what,
                 const std::function<void(const std::atomic<bool>& stop)>& body,
                 const std::function<bool()>& wants_stop);

}  // namespace dpt
