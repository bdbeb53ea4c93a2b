#include "kernels/base/start_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/base/denormals.h"
#include "kernels/base/error.h"
#include "kernels/base/heartbeat.h"
#include "kernels/base/host.h"
#include "kernels/base/text.h"

namespace dpt {
namespace {

/// Returns the thread limits that are set, as text for a message.
std::string limits_text() {
  std::string text;
  const auto add = [&](const std::string& limit) { text += (text.empty() ? "" : ", ") + limit; };
  rlimit limit{};
  const auto is_set = [&](auto resource) {
    return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  };
  if (is_set(RLIMIT_NPROC)) {
    add(fmt::format("{} processes and threads of this user (ulimit -u)", limit.rlim_cur));
  }
  if (is_set(RLIMIT_AS)) add(fmt::format("{} of addresses (ulimit -v)", mebibytes(limit.rlim_cur)));
  if (is_set(RLIMIT_STACK)) {
    add(fmt::format("{} of stack for each thread (ulimit -s)", mebibytes(limit.rlim_cur)));
  }
  if (const std::int64_t most = host_system::most_threads(); most > 0) {
    add(fmt::format("{} threads in this control group (pids.max)", most));
  }
  return text.empty() ? "none visible to dpt" : text;
}

int threads_of_this_process() {
  std::error_code failure;
  int count = 0;
  for (std::filesystem::directory_iterator at("/proc/self/task", failure), end;
       !failure && at != end; at.increment(failure)) {
    ++count;
  }
  return count;
}

}  // namespace

int run_with_large_stacks(const std::function<int()>& body) {
  constexpr std::size_t kEnough = std::size_t{1} << 20, kLarge = std::size_t{8} << 20;
  pthread_attr_t defaults;
  std::size_t size = kEnough;
  // The default stack size of glibc's threads is the stack limit of the process.
  if (pthread_getattr_default_np(&defaults) == 0) {
    pthread_attr_getstacksize(&defaults, &size);
    if (size < kEnough && pthread_attr_setstacksize(&defaults, kLarge) == 0) {
      pthread_setattr_default_np(&defaults);
    }
    pthread_attr_destroy(&defaults);
  }
  if (size >= kEnough) return body();
  std::packaged_task<int()> task(body);
  std::future<int> result = task.get_future();
  // Signals are meant for the thread that runs the body, so block them in this one.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  start_thread("the command", [&] {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    task();
  }).join();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return result.get();
}

std::thread start_thread(const std::string& what, std::function<void()> body) {
  try {
    return std::thread([body = std::move(body), heartbeat = heartbeat_of_thread()]() mutable {
      flush_denormals();
      set_heartbeat_of_thread(std::move(heartbeat));
      body();
    });
  } catch (const std::system_error& error) {
    fail(ErrorKind::device,
         "cannot start a thread ({}): {}. This process has {}; the limits are: {}. Use "
         "fewer devices, fewer threads in cpu:N or a smaller data.workers, or raise the limit",
         what, error.code().message(), counted(threads_of_this_process(), "thread"), limits_text());
  }
}

void require_threads(const std::string& what, int count) {
  std::mutex mutex;
  std::condition_variable leave;
  bool may_leave = false;
  std::vector<std::thread> threads;
  const auto end = [&] {
    {
      const std::lock_guard lock(mutex);
      may_leave = true;
    }
    leave.notify_all();
    for (std::thread& thread : threads) thread.join();
  };
  try {
    for (int i = 0; i < count; ++i) {
      threads.push_back(start_thread(fmt::format("{}, thread {} of {}", what, i + 1, count), [&] {
        std::unique_lock lock(mutex);
        leave.wait(lock, [&] { return may_leave; });
      }));
    }
  } catch (...) {
    end();
    throw;
  }
  end();
}

}  // namespace dpt
