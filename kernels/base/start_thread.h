// The one function that starts dpt's threads.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace dpt {

/// Returns what `body` returns, or throws what it throws. If stacks are limited to less than 1 MiB
/// (ulimit -s), runs it on a thread with a stack of 8 MiB. This is then also the size for all later
/// threads, including those of libraries. Call this before any thread starts.
int run_with_large_stacks(const std::function<int()>& body);

/// Starts a thread that runs `body`, flushes denormal numbers (kernels/base/denormals.h) and shares
/// the heartbeat of the calling thread (kernels/base/heartbeat.h). Throws ErrorKind::device if the
/// system cannot start another thread; the error contains `what` ("decoder thread 3 of 8") and the
/// limits that apply.
std::thread start_thread(const std::string& what, std::function<void()> body);

/// Throws as start_thread does unless `count` threads can be started now, at the same time. Call it
/// before libraries that start threads and end the process if they cannot (OpenMP).
void require_threads(const std::string& what, int count);

}  // namespace dpt
