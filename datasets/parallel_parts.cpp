#include "datasets/parallel_parts.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "kernels/base/error.h"
#include "kernels/base/heartbeat.h"
#include "kernels/base/stop_request.h"
#include "kernels/base/worker_threads.h"

namespace dpt {

void for_each_part(std::size_t count, const std::string& what,
                   const std::function<void(std::size_t)>& body) {
  // May exceed the number of cores: the threads mostly wait for the file system.
  constexpr std::size_t kMaxThreads = 32;
  const std::size_t threads = std::min(count, kMaxThreads);
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  std::atomic<std::size_t> failed{count};
  const auto work = [&](const std::atomic<bool>&) {
    // Parts begin in order, so all parts before a failed one have begun and will end.
    for (std::size_t i = next++; i < failed; i = next++) {
      beat("listing files");
      try {
        check_stop();
        body(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i >= failed) continue;
        failed = i;
        error = std::current_exception();
      }
    }
  };
  bool is_done = false;
  if (threads > 1) {
    try {
      run_workers(static_cast<int>(threads), what, work, {});
      is_done = true;
    } catch (const Error& refused) {
      // If the system cannot start the threads, run the remaining parts on this one.
      if (refused.kind() != ErrorKind::device) throw;
    }
  }
  if (!is_done) work(std::atomic<bool>{false});
  if (error) std::rethrow_exception(error);
}

}  // namespace dpt
