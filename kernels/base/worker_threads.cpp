#include "kernels/base/worker_threads.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/start_thread.h"
#include "kernels/base/stop_request.h"

namespace dpt {
namespace {

/// Owner of the threads. Joins them in its destructor.
struct WorkerThreads {
  std::mutex mutex;
  std::condition_variable changed;
  int running = 0;
  std::exception_ptr error;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;

  ~WorkerThreads() {
    stop = true;
    for (std::thread& thread : threads) thread.join();
  }

  void work(const std::function<void(const std::atomic<bool>&)>& body) {
    std::exception_ptr thrown;
    try {
      body(stop);
    } catch (...) {
      thrown = std::current_exception();
      stop = true;
    }
    const std::lock_guard lock(mutex);
    if (thrown && !error) error = thrown;
    if (--running == 0) changed.notify_all();
  }
};

}  // namespace

bool run_workers(int workers, const std::string& what,
                 const std::function<void(const std::atomic<bool>&)>& body,
                 const std::function<bool()>& wants_stop) {
  constexpr std::chrono::milliseconds kBetweenQuestions{100};
  WorkerThreads all;
  workers = std::max(workers, 1);
  bool is_stopped = false;
  for (int i = 0; i < workers; ++i) {
    {
      const std::lock_guard lock(all.mutex);
      ++all.running;
    }
    all.threads.push_back(start_thread(fmt::format("{} thread {} of {}", what, i + 1, workers),
                                       [&all, &body] { all.work(body); }));
  }
  std::unique_lock lock(all.mutex);
  while (!all.changed.wait_for(lock, kBetweenQuestions, [&all] { return all.running == 0; })) {
    lock.unlock();
    check_stop();
    if (!is_stopped && wants_stop && wants_stop()) is_stopped = all.stop = true;
    lock.lock();
  }
  const std::exception_ptr error = all.error;
  lock.unlock();
  if (error) std::rethrow_exception(error);
  if (!is_stopped && wants_stop && wants_stop()) is_stopped = true;
  return !is_stopped;
}

}  // namespace dpt
