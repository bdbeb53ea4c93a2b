// The control channel of a world without failures, and of one whose processes report failures or
// wait forever.
#include "engine/processes/control.h"

#include <atomic>
#include <mutex>
#include <set>

#include "engine/processes/control_types.h"
#include "tests/engine/processes/control_world.h"

namespace dpt::testing {

TEST_CASE("processes join, gather in the order of their ranks, and leave") {
  for (const int size : {2, 3, 8}) {
    const auto outcomes = run_world(size, quick_options(), [&](ControlChannel& channel) {
      std::string text;
      for (const std::string call : {"hosts", "ports", "hosts"}) {
        for (const std::string& said :
             channel.all_gather(call, call + std::to_string(channel.world().rank))) {
          text += said + " ";
        }
      }
      channel.leave();
      return text;
    });
    std::string expected;
    for (const std::string call : {"hosts", "ports", "hosts"}) {
      for (int rank = 0; rank < size; ++rank) expected += call + std::to_string(rank) + " ";
    }
    for (const Outcome& outcome : outcomes) {
      CAPTURE(outcome.text);
      CHECK(outcome.kind == 0);
      CHECK(outcome.text == expected);
    }
  }
}

TEST_CASE("gathered bytes arrive unchanged, even very many or none") {
  std::string bytes;
  for (int i = 0; i < (1 << 20); ++i) bytes += static_cast<char>(i * 7 + i / 256);
  const auto outcomes = run_world(8, quick_options(), [&](ControlChannel& channel) {
    const int rank = channel.world().rank;
    std::string mine = bytes;
    mine[0] = static_cast<char>(rank);
    const auto all = channel.all_gather("much", rank == 3 ? "" : mine);
    channel.leave();
    for (int other = 0; other < 8; ++other) {
      mine[0] = static_cast<char>(other);
      if (all[other] != (other == 3 ? "" : mine)) return "wrong";
    }
    return "right";
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.text == "right");
}

TEST_CASE("more than the channel carries fails everywhere, with both numbers") {
  const auto outcomes = run_world(2, quick_options(), [&](ControlChannel& channel) {
    channel.all_gather("too much", std::string(channel.world().rank == 0 ? 100 : 16 << 20, 'x'));
    return "gathered";
  });
  for (const Outcome& outcome : outcomes) {
    CAPTURE(outcome.text);
    CHECK(outcome.kind == kPeer);
    CHECK(contains(outcome.text, "'too much' is too large"));
    CHECK(contains(outcome.text, "the limit of 16777216"));
  }
}

TEST_CASE("processes at different points of the program get a message about it") {
  const auto outcomes = run_world(3, quick_options(), [&](ControlChannel& channel) {
    if (channel.world().rank == 2) channel.leave();
    channel.all_gather("the facts", "x");
    return "gathered";
  });
  for (const Outcome& outcome : outcomes) {
    CAPTURE(outcome.text);
    CHECK(outcome.kind == kPeer);
    CHECK(contains(outcome.text, "not at the same point"));
    CHECK(contains(outcome.text, "'the facts'"));
    CHECK(contains(outcome.text, "'the end of the run'"));
    CHECK(contains(outcome.text, "rank 2 (host host2, pid "));
  }
}

TEST_CASE("the first cause reaches all, with text and exit code, whoever fails next") {
  const auto outcomes = run_world(4, quick_options(), [&](ControlChannel& channel) {
    const int rank = channel.world().rank;
    std::atomic<int> called{0};
    channel.on_failure([&](const WorldFailure&) { ++called; });
    heartbeat_of_thread()->set_step(17);
    beat("training");
    if (rank == 2) channel.fail("the disk is full", 3);
    if (rank == 1) {
      channel.wait_for_failure(kLong);
      channel.fail("because of the others", 6);
      channel.fail("once more", 6);
    }
    const auto failure = channel.wait_for_failure(kLong);
    while (called == 0) std::this_thread::yield();
    // A handler that is set after the failure is called at once.
    std::atomic<bool> told{false};
    channel.on_failure([&](const WorldFailure& its) { told = its.text == failure->text; });
    while (!told) std::this_thread::yield();
    channel.on_failure(nullptr);
    CHECK(called == 1);
    return failure ? std::to_string(failure->rank) + std::to_string(failure->exit_code) +
                         (failure->is_lost ? "lost " : " ") + failure->text
                   : "none";
  });
  for (const Outcome& outcome : outcomes) {
    CAPTURE(outcome.text);
    CHECK(outcome.text == outcomes[0].text);
    CHECK(contains(outcome.text, "23 rank 2 (host host2, pid "));
    CHECK(contains(outcome.text, ") failed at step 17, training: the disk is full"));
  }
}

TEST_CASE("of two that fail at once, both end with the same cause") {
  for (int round = 0; round < 10; ++round) {
    std::atomic<int> there{0};
    const auto outcomes = run_world(3, quick_options(), [&](ControlChannel& channel) {
      const int rank = channel.world().rank;
      for (++there; there < 3;) std::this_thread::yield();
      if (rank > 0) channel.fail("cause " + std::to_string(rank), rank);
      return channel.wait_for_failure(kLong)->text;
    });
    CHECK(outcomes[1].text == outcomes[0].text);
    CHECK(outcomes[2].text == outcomes[0].text);
  }
}

TEST_CASE("a failure wakes a process that waits in a collective call") {
  const auto outcomes = run_world(3, quick_options(), [&](ControlChannel& channel) {
    if (channel.world().rank == 1) {
      channel.fail("no such device", 4);
      return channel.failure()->text;
    }
    if (channel.world().rank == 0) channel.leave();
    channel.all_gather("the end of the run", "");
    return std::string("gathered");
  });
  CHECK(outcomes[1].kind == 0);
  for (const int rank : {0, 2}) {
    const Outcome& outcome = outcomes[rank];
    CHECK(outcome.kind == kPeer);
    CHECK((contains(outcome.text, "no such device") ||
           contains(outcome.text, "not at the same point")));
  }
}

TEST_CASE("a process that ends without leaving is lost, wherever it is") {
  for (const int lost : {0, 2}) {
    const auto outcomes = run_world(3, quick_options(), [&](ControlChannel& channel) {
      heartbeat_of_thread()->set_step(5);
      beat("training");
      channel.all_gather("the start", "");
      if (channel.world().rank == lost) return std::string("gone");
      const auto failure = channel.wait_for_failure(kLong);
      return failure ? std::to_string(failure->rank) + (failure->is_lost ? " lost " : " ") +
                           failure->text
                     : "none";
    });
    const std::string name = std::to_string(lost);
    for (int rank = 0; rank < 3; ++rank) {
      const std::string& text = outcomes[rank].text;
      if (rank == lost) continue;
      CHECK(contains(text, name + " lost rank " + name + " (host host" + name + ", pid "));
      CHECK(contains(text, ") was lost: its connection ended"));
    }
  }
}

TEST_CASE("after all have left, the first process to end is not a loss") {
  std::atomic<int> failures{0}, left{0};
  const auto outcomes = run_world(4, quick_options(), [&](ControlChannel& channel) {
    channel.on_failure([&](const WorldFailure&) { ++failures; });
    channel.leave();
    ++left;
    if (channel.world().rank == 3) {
      while (left < 4) std::this_thread::yield();
      CHECK(!channel.wait_for_failure(200ms));
      channel.fail("too late", 1);
      CHECK(!channel.failure());
    }
    return "left";
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.text == "left");
  CHECK(failures == 0);
}

TEST_CASE("a thread that makes no progress is found, with step, activity and time") {
  ControlOptions options = quick_options();
  const auto outcomes = run_world(3, options, [&](ControlChannel& channel) {
    channel.all_gather("the start", "");
    channel.set_stall_timeout(1s);
    heartbeat_of_thread()->set_step(9);
    beat("reading samples");
    // One rank hangs, one waits for it, one works.
    if (channel.world().rank == 0) channel.begin_wait("the sum of the gradients");
    while (channel.world().rank == 2 && !channel.failure()) {
      beat("training");
      std::this_thread::sleep_for(1ms);
    }
    const auto failure = channel.wait_for_failure(kLong);
    return failure ? failure->text : "none";
  });
  for (const Outcome& outcome : outcomes) {
    CAPTURE(outcome.text);
    CHECK(contains(outcome.text, "rank 1 (host host1, pid "));
    CHECK(contains(outcome.text, "has stalled: it made no progress for 1.0 s"));
    CHECK(contains(outcome.text, "at step 9, reading samples"));
  }
}

TEST_CASE("processes that all wait for each other are found, with what each waits for") {
  std::atomic<std::uint64_t> beats{0};
  const auto outcomes = run_world(3, quick_options(), [&](ControlChannel& channel) {
    const int rank = channel.world().rank;
    const auto helper = std::make_shared<Heartbeat>();
    channel.watch({heartbeat_of_thread(), helper});
    channel.all_gather("the start", "");
    channel.set_stall_timeout(1s);
    if (rank == 2) {
      channel.all_gather("the results", "");
      return std::string("gathered");
    }
    const std::uint64_t before = helper->beats();
    channel.begin_wait("the sum of the gradients");
    const auto failure = channel.wait_for_failure(kLong);
    channel.end_wait();
    beats += helper->beats() - before;
    return failure ? std::to_string(failure->rank) + failure->text : "none";
  });
  for (const Outcome& outcome : outcomes) {
    CAPTURE(outcome.text);
    CHECK(contains(outcome.text, "all processes have been waiting for each other for 1.0 s"));
    CHECK(contains(outcome.text,
                   "ranks 0 and 1 in the sum of the gradients before its first step, "
                   "waiting for other processes"));
    CHECK(contains(outcome.text, "rank 2 in the results"));
  }
  CHECK(outcomes[2].kind == kPeer);
  // The threads of a waiting process must not take each other for stalled.
  CHECK(beats >= 2 * 8);
}

TEST_CASE("waits that end and begin again are progress") {
  ControlOptions options = quick_options();
  options.stall_timeout = 1s;
  const auto outcomes = run_world(2, options, [&](ControlChannel& channel) {
    const auto until = std::chrono::steady_clock::now() + 1300ms;
    while (std::chrono::steady_clock::now() < until) {
      channel.begin_wait("the sum of the gradients");
      std::this_thread::sleep_for(20ms);
      channel.end_wait();
    }
    channel.leave();
    return "left";
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.text == "left");
}

}  // namespace dpt::testing
