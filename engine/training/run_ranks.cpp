#include "engine/training/run_ranks.h"

#include <exception>
#include <mutex>
#include <thread>

#include "kernels/error.h"
#include "kernels/start_thread.h"

namespace dpt {

void run_ranks(const std::vector<DeviceName>& devices, const BackendOptions& options,
               const std::function<void(Backend&, Communicator&)>& body,
               std::chrono::milliseconds stall_timeout) {
  const int size = static_cast<int>(devices.size());
  LocalGroup group(size, stall_timeout);
  std::mutex mutex;
  std::exception_ptr first;  // The first failure; what it causes on other ranks comes later.

  // Where there are several, a device's error says whose it is. (That of another rank does so
  // already.)
  const auto named = [&](int rank, const Error& error) {
    if (size == 1 || error.kind() != ErrorKind::device) return std::current_exception();
    return std::make_exception_ptr(Error(
        error.kind(), fmt::format("replica {} on {}: {}", rank,
                                  devices[static_cast<std::size_t>(rank)].text(), error.what())));
  };
  const auto failed = [&](int rank, const std::string& cause, std::exception_ptr exception) {
    {
      const std::lock_guard lock(mutex);
      if (!first) first = std::move(exception);
    }
    group.abort(rank, cause);
  };
  const auto run = [&](int rank) {
    try {
      const auto backend = make_backend(devices[static_cast<std::size_t>(rank)], options);
      const auto communicator = group.join(rank, *backend);
      body(*backend, *communicator);
    } catch (const Error& error) {
      failed(rank, error.what(), named(rank, error));
    } catch (const std::exception& error) {
      failed(rank, error.what(), std::current_exception());
    } catch (...) {
      failed(rank, "an exception of an unknown type", std::current_exception());
    }
  };

  if (size == 1) {
    run(0);
  } else {
    std::vector<std::thread> threads;
    threads.reserve(devices.size());
    for (int rank = 0; rank < size; ++rank) {
      try {
        threads.push_back(
            start_thread(fmt::format("replica {} of {}", rank, size), [&run, rank] { run(rank); }));
      } catch (const Error& error) {
        // Those that run already wait for this rank.
        failed(rank, error.what(), std::current_exception());
        break;
      }
    }
    for (std::thread& thread : threads) thread.join();
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace dpt
