// The one function that starts dpt's threads.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace dpt {

/// Returns what `body` returns, or throws what it throws. If stacks are limited to less than 1 MiB
/// (ulimit -s), runs it on a thread with 8 MiB; all threads get that from then on, including those
/// of libraries. Call this before any thread starts.
int run_with_large_stacks(const std::function<int()>& body);

/// A thread that runs `body`, flushes denormal numbers (kernels/base/denormals.h) and beats for the
/// replica of the calling thread (kernels/base/heartbeat.h). Throws ErrorKind::device when the
/// system starts no more threads: `what` says whose it would have been ("decoder thread 3 of 8"),
/// and the text names the limits that apply.
std::thread start_thread(const std::string& what, std::function<void()> body);

/// Throws as start_thread unless `count` threads could be started now, at once. For libraries that
/// start threads themselves and end the process when they cannot (OpenMP).
void require_threads(const std::string& what, int count);

}  // namespace dpt
