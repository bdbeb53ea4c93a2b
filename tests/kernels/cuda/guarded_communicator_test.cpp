// The lock between a rank that sums over GPUs and another that aborts the sum, with a library that
// records what has been freed.
#include "kernels/cuda/runtime/guarded_communicator.h"

#include <doctest/doctest.h>

#include <atomic>
#include <future>

namespace dpt::testing {
namespace {

using namespace std::chrono_literals;

/// A replacement for NCCL. It counts calls with a communicator that is freed or in use by another
/// call.
struct Library {
  std::atomic<int> inside = 0, misuses = 0, aborts = 0, asked = 0;
  std::atomic<bool> freed = false, waits_for_others = false, has_failed = false;
  std::promise<void> entered;

  void use(std::chrono::milliseconds at_most_until_misused) {
    if (inside++ > 0 || freed) ++misuses;
    const auto until = std::chrono::steady_clock::now() + at_most_until_misused;
    while (misuses == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    if (freed) ++misuses;
    --inside;
  }
};

struct Api {
  using Handle = Library*;
  bool in_progress(Library* library) const {
    library->use(0ms);
    if (library->asked++ == 0) library->entered.set_value();
    if (library->has_failed) fail(ErrorKind::device, "the network is gone");
    return library->waits_for_others;
  }
  static void abort(Library* library) noexcept {
    if (library->inside > 0 || library->freed.exchange(true)) ++library->misuses;
    ++library->aborts;
  }
};
using Guarded = GuardedCommunicator<Api>;

TEST_CASE("a communicator is not ended while its rank is inside the library") {
  Library library;
  Guarded communicator({}, "cuda:0");
  communicator.own(&library);
  std::promise<void> inside;
  std::thread other([&] {
    inside.get_future().wait();
    communicator.abort();
    communicator.abort();
  });
  // Without the lock, the other thread frees the communicator during this call.
  try {
    communicator.run(
        [&](Library* handle) {
          inside.set_value();
          handle->use(100ms);
        },
        10s);
  } catch (const Error& error) {
    CHECK(error.kind() ==
          ErrorKind::peer);  // The communicator was aborted before the library was asked again.
  }
  other.join();
  CHECK(library.misuses == 0);
  CHECK(library.aborts == 1);
  int calls = 0;
  CHECK_THROWS_WITH_AS(communicator.run([&](Library*) { ++calls; }, 1s),
                       doctest::Contains("cuda:0: the sum over GPUs was aborted"), Error);
  CHECK_THROWS_AS(communicator.require_alive(), Error);
  CHECK(calls == 0);
}

TEST_CASE("a rank that waits for others is let go when the communicator is ended") {
  Library library;
  library.waits_for_others = true;
  Guarded communicator({}, "cuda:1");
  communicator.own(&library);
  std::future<void> rank = std::async(
      std::launch::async, [&] { communicator.run([](Library* handle) { handle->use(0ms); }, 1h); });
  library.entered.get_future().wait();
  communicator.abort();
  CHECK_THROWS_WITH_AS(rank.get(), doctest::Contains("another rank failed"), Error);
  CHECK(library.misuses == 0);
}

TEST_CASE("a communicator that never gets ready fails in bounded time, and is freed once") {
  Library library;
  library.waits_for_others = true;
  {
    Guarded communicator({}, "cuda:1");
    communicator.own(&library);
    CHECK_THROWS_WITH_AS(communicator.run([](Library*) {}, 1ms),
                         doctest::Contains("cuda:1: the sum over GPUs was not queued"), Error);
    CHECK(library.aborts == 0);
  }
  CHECK(library.aborts == 1);
  CHECK(library.misuses == 0);
}

TEST_CASE("a communicator that was ended before it was there is freed when it comes") {
  Library library;
  Guarded communicator({}, "cuda:0");
  communicator.abort();
  CHECK(library.aborts == 0);
  communicator.own(&library);
  CHECK(library.aborts == 1);
  CHECK_THROWS_WITH_AS(communicator.run([](Library*) {}, 1s),
                       doctest::Contains("cuda:0: the sum over GPUs was aborted"), Error);
  CHECK(library.misuses == 0);
}

TEST_CASE("an error between calls can be queried until the end") {
  Library library;
  Guarded communicator({}, "cuda:0");
  communicator.check();
  CHECK(library.asked == 0);  // There is no communicator yet.
  communicator.own(&library);
  communicator.check();
  CHECK(library.asked == 1);
  library.has_failed = true;
  CHECK_THROWS_WITH_AS(communicator.check(), "the network is gone", Error);
  communicator.abort();
  communicator.check();
  CHECK(library.misuses == 0);
}

TEST_CASE("many sums and an end at any moment") {
  for (int round = 0; round < 200; ++round) {
    Library library;
    Guarded communicator({}, "cuda:0");
    communicator.own(&library);
    std::atomic<int> sums = 0;
    std::thread rank([&] {
      try {
        for (;;) {
          communicator.run([](Library* handle) { handle->use(0ms); }, 10s);
          ++sums;
        }
      } catch (const Error&) {
      }
    });
    while (sums < round % 7) std::this_thread::yield();
    communicator.abort();
    rank.join();
    CHECK(library.misuses == 0);
    CHECK(library.aborts == 1);
  }
}

}  // namespace
}  // namespace dpt::testing
