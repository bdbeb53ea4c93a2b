#include "engine/training/run_ranks.h"

#include <exception>
#include <mutex>
#include <thread>

namespace dpt {

void run_ranks(const std::vector<DeviceName>& devices, const BackendOptions& options,
               const std::function<void(Backend&, Communicator&)>& body,
               std::chrono::milliseconds deadline) {
  const int size = static_cast<int>(devices.size());
  LocalGroup group(size, deadline);
  std::mutex mutex;
  std::exception_ptr first;  // The first failure; what it causes on other ranks comes later.

  const auto run = [&](int rank) {
    const auto failed = [&](const std::string& cause) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      group.abort(rank, cause);
    };
    try {
      const auto backend = make_backend(devices[static_cast<std::size_t>(rank)], options);
      const auto communicator = group.join(rank, *backend);
      body(*backend, *communicator);
    } catch (const std::exception& error) {
      failed(error.what());
    } catch (...) {
      failed("an exception of an unknown type");
    }
  };

  if (size == 1) {
    run(0);
  } else {
    std::vector<std::thread> threads;
    threads.reserve(devices.size());
    for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
    for (std::thread& thread : threads) thread.join();
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace dpt
