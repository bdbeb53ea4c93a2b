#include "engine/job/run_ranks.h"

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/collectives/local_group.h"
#include "engine/job/job.h"
#include "engine/processes/process_group.h"
#include "kernels/base/error.h"
#include "kernels/base/lost_device.h"
#include "kernels/base/start_thread.h"

namespace dpt {

namespace {

bool is_of_device(const Error& error) {
  return error.kind() == ErrorKind::device || dynamic_cast<const LostDevice*>(&error) != nullptr;
}

/// Runs the ranks of this process, the first of which is `first_rank`, in a world of `total` ranks.
/// Calls `report` for each failure.
void run_threads(RankGroup& group, const std::vector<DeviceName>& devices, BackendOptions options,
                 int first_rank, int total, const RankBody& body,
                 const std::function<void(const std::exception&)>& report) {
  const int size = static_cast<int>(devices.size());
  const auto has_failed = std::make_shared<std::atomic<bool>>(false);
  options.has_failed = has_failed;
  std::mutex mutex;
  // The failure to rethrow: the root cause. The failures that it causes on other ranks usually come
  // later, but may come first if the failed rank takes time to free its resources.
  std::exception_ptr first;
  bool first_follows = false;

  // Names the rank in a device's error if there are several ranks. (Errors of other kinds already
  // name it.)
  const auto named = [&](int rank, const Error& error) {
    if (total == 1 || !is_of_device(error)) return std::current_exception();
    return std::make_exception_ptr(
        Error(error.kind(), fmt::format("replica {} on {}: {}", first_rank + rank,
                                        devices[rank].text(), error.what())));
  };
  const auto failed = [&](int rank, const std::exception& cause, std::exception_ptr exception) {
    {
      const std::lock_guard lock(mutex);
      const auto* error = dynamic_cast<const Error*>(&cause);
      const bool follows = error && error->kind() == ErrorKind::peer && !is_of_device(*error);
      if (!first || (first_follows && !follows)) {
        first = std::move(exception);
        first_follows = follows;
      }
    }
    has_failed->store(true);
    if (report) report(cause);
    group.abort(rank, cause.what());
  };
  const auto run = [&](int rank) {
    try {
      const auto backend = make_backend(devices[rank], options);
      const auto communicator = group.join(rank, *backend);
      body(*backend, *communicator);
    } catch (const Error& error) {
      failed(rank, error, named(rank, error));
    } catch (const std::exception& error) {
      failed(rank, error, std::current_exception());
    } catch (...) {
      failed(rank, Error(ErrorKind::unexpected, "an exception of an unknown type"),
             std::current_exception());
    }
  };

  if (size == 1) {
    run(0);
  } else {
    std::vector<std::thread> threads;
    threads.reserve(devices.size());
    for (int rank = 0; rank < size; ++rank) {
      try {
        threads.push_back(start_thread(fmt::format("replica {} of {}", first_rank + rank, total),
                                       [&run, rank] { run(rank); }));
      } catch (const Error& error) {
        // Ranks that are already running wait for this one.
        failed(rank, error, std::current_exception());
        break;
      }
    }
    for (std::thread& thread : threads) thread.join();
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace

void run_ranks(const std::vector<DeviceName>& devices, const BackendOptions& options,
               const RankBody& body, std::chrono::milliseconds stall_timeout) {
  const int size = static_cast<int>(devices.size());
  LocalGroup group(size, stall_timeout);
  BackendOptions limited = options;
  limited.wait_limit = stall_timeout;
  run_threads(group, devices, limited, 0, size, body, {});
}

void run_ranks(const Job& job, const RankBody& body) {
  if (!job.placement.processes) {
    return run_ranks(job.placement.devices, job.placement.backend_options, body,
                     stall_timeout(job.spec));
  }
  const auto group = job.placement.processes->make_group(stall_timeout(job.spec));
  BackendOptions limited = job.placement.backend_options;
  limited.wait_limit = stall_timeout(job.spec);
  run_threads(*group, job.placement.own_devices(), limited, job.placement.first_rank(),
              job.placement.ranks(), body,
              [&](const std::exception& error) { job.placement.processes->report(error); });
}

}  // namespace dpt
