// Decoder threads that several loaders share: all loaders are served, and a removed one is not
// called.
#include <atomic>
#include <latch>

#include "engine/data/decoder_pool.h"
#include "tests/engine/data/support.h"

namespace dpt {
namespace {

/// Client with a number of work items; it may block the thread that runs one.
struct Pieces final : DecoderPool::Client {
  explicit Pieces(int count) : left(count) {}
  bool work() noexcept override {
    if (is_gone) was_called_when_gone = true;
    if (left.fetch_sub(1) <= 0) {
      left.fetch_add(1);
      return false;
    }
    if (entered) entered->count_down();
    if (may_go_on) may_go_on->wait();
    done.fetch_add(1);
    done.notify_all();
    return true;
  }
  void wait_until(int count) {
    for (int seen = done; seen < count; seen = done) done.wait(seen);
  }

  std::atomic<int> left, done{0};
  std::atomic<bool> is_gone{false}, was_called_when_gone{false};
  std::latch *entered = nullptr, *may_go_on = nullptr;
};

TEST_CASE("idle-time clients of a decoder pool are served when no other has work") {
  DecoderPool pool(1);
  std::latch entered(1), may_go_on(1);
  Pieces first(40);
  first.entered = &entered;
  first.may_go_on = &may_go_on;
  struct Idle final : DecoderPool::Client {
    explicit Idle(const Pieces& a_first) : first(a_first) {}
    bool work() noexcept override {
      if (first.left > 0) came_early = true;
      return pieces.work();
    }
    const Pieces& first;
    Pieces pieces{3};
    std::atomic<bool> came_early{false};
  } idle(first);
  pool.add(first);
  entered.wait();
  pool.add_idle(idle);
  first.entered = nullptr;
  may_go_on.count_down();
  first.wait_until(40);
  idle.pieces.wait_until(3);
  CHECK(!idle.came_early);
  pool.remove(idle);
  pool.remove(first);
}

TEST_CASE("clients of a decoder pool are served until they leave") {
  for (const int threads : {1, 3}) {
    DecoderPool pool(threads);
    CHECK(pool.threads() == threads);
    Pieces first(40), second(40), idle(0);
    pool.add(first);
    pool.add(idle);
    pool.add(second);
    first.wait_until(40);
    second.wait_until(40);
    // Threads do not look again by themselves: new work must be announced.
    second.left = 5;
    pool.wake();
    second.wait_until(45);
    pool.remove(first);
    first.is_gone = true;
    first.left = 1;
    pool.wake();
    second.left = 5;
    pool.wake();
    second.wait_until(50);
    pool.remove(second);
    pool.remove(idle);
    CHECK(!first.was_called_when_gone);
    CHECK(first.done == 40);
  }
}

TEST_CASE("a slow client does not keep a pool's other threads") {
  DecoderPool pool(2);
  std::latch entered(1), may_go_on(1);
  Pieces slow(1), quick(100);
  slow.entered = &entered;
  slow.may_go_on = &may_go_on;
  pool.add(slow);
  entered.wait();
  pool.add(quick);
  quick.wait_until(100);
  CHECK(slow.done == 0);
  may_go_on.count_down();
  pool.remove(slow);
  CHECK(slow.done == 1);
  pool.remove(quick);
}

}  // namespace
}  // namespace dpt
