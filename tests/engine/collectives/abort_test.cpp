// A failure on one rank reaches all the others, with its cause, and no rank waits forever.
#include <doctest/doctest.h>

#include <map>

#include "engine/collectives/local_group.h"
#include "kernels/base/heartbeat.h"
#include "kernels/base/start_thread.h"
#include "tests/engine/collectives/ranks.h"

namespace dpt {
namespace {

using namespace std::chrono_literals;

const std::map<std::string, RankBody>& calls() {
  static const std::map<std::string, RankBody> table = {
      {"all_reduce",
       [](Communicator& comm, QueuedBackend& backend) {
         Floats buffer(backend, std::vector<float>(100, 1.0F));
         const PartialSum part{{comm.rank(), 0}, buffer.ptr()};
         comm.all_reduce(comm.size(), {&part, 1}, buffer.ptr(), 100);
       }},
      {"broadcast",
       [](Communicator& comm, QueuedBackend&) {
         std::vector<std::byte> data(64);
         comm.broadcast(data, 0);
       }},
      {"all_gather",
       [](Communicator& comm, QueuedBackend&) {
         std::vector<std::byte> mine(8), all(8 * static_cast<std::size_t>(comm.size()));
         comm.all_gather(mine, all);
       }},
      {"barrier", [](Communicator& comm, QueuedBackend&) { comm.barrier(); }}};
  return table;
}

TEST_CASE("an exception on any rank, before any call, stops all others with its cause") {
  for (const auto& [name, call] : calls()) {
    for (int ranks : {2, 3, 5}) {
      for (int bad = 0; bad < ranks; ++bad) {
        CAPTURE(name);
        CAPTURE(ranks);
        CAPTURE(bad);
        LocalGroup group(ranks, 1min);
        const auto outcomes =
            run_ranks(group, ranks, [&, &body = call](Communicator& comm, QueuedBackend& backend) {
              body(comm, backend);
              if (comm.rank() == bad) fail(ErrorKind::data, "file x.png is corrupt");
              for (int round = 0; round < 100; ++round) body(comm, backend);
            });
        for (int rank = 0; rank < ranks; ++rank) {
          const Outcome& outcome = outcomes[rank];
          REQUIRE(outcome.kind.has_value());
          if (rank == bad) {
            REQUIRE(*outcome.kind == ErrorKind::data);
            REQUIRE(outcome.text == "file x.png is corrupt");
          } else {
            REQUIRE(*outcome.kind == ErrorKind::peer);
            REQUIRE(outcome.text == fmt::format("rank {}: {} was stopped because rank {} failed: "
                                                "file x.png is corrupt",
                                                rank, name, bad));
          }
        }
        REQUIRE(group.abort_cause() == "file x.png is corrupt");
      }
    }
  }
}

TEST_CASE("a rank that fails before it joins") {
  LocalGroup group(3, 1min);
  std::thread failing([&] {
    std::this_thread::sleep_for(5ms);
    group.abort(2, "no memory on the device");
  });
  std::vector<Outcome> outcomes(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      QueuedBackend backend;
      const auto comm = group.join(rank, backend);
      try {
        comm->barrier();
      } catch (const Error& error) {
        outcomes[rank] = {error.kind(), error.what()};
      }
    });
  }
  failing.join();
  for (std::thread& thread : threads) thread.join();
  CHECK(outcomes[0].text ==
        "rank 0: barrier was stopped because rank 2 failed: no memory on the device");
  CHECK(outcomes[1].text ==
        "rank 1: barrier was stopped because rank 2 failed: no memory on the device");
}

TEST_CASE("an abort from outside wakes sleepers, and its cause stays the first one") {
  LocalGroup group(3, 1min);
  std::thread outside([&] {
    std::this_thread::sleep_for(20ms);
    group.abort(1, "first");
    group.abort(0, "second");
  });
  const auto outcomes = run_ranks(group, 3, [&group](Communicator& comm, QueuedBackend&) {
    // The two other ranks sleep at the barrier or reach it later. The barrier opens in neither
    // case.
    while (comm.rank() == 1 && group.abort_cause().empty()) std::this_thread::sleep_for(1ms);
    comm.barrier();
  });
  outside.join();
  for (const Outcome& outcome : outcomes) {
    CHECK(*outcome.kind == ErrorKind::peer);
    CHECK(outcome.text.find("because rank 1 failed: first") != std::string::npos);
  }
  CHECK(group.abort_cause() == "first");
}

TEST_CASE("aborts at random instants: a call returns on all ranks or on none") {
  for (int trial = 0; trial < 60; ++trial) {
    const int ranks = 2 + trial % 3;
    LocalGroup group(ranks, 1min);
    std::vector<int> returned(static_cast<std::size_t>(ranks));
    std::thread outside([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(50 * trial));
      group.abort(0, "from outside");
    });
    run_ranks(group, ranks, [&](Communicator& comm, QueuedBackend& backend) {
      // Each round allocates its own memory and frees it, as a rank may do.
      for (;;) {
        calls().at("all_reduce")(comm, backend);
        ++returned[comm.rank()];
      }
    });
    outside.join();
    for (int count : returned) REQUIRE(count == returned[0]);
  }
}

TEST_CASE("a rank that does not come is named when the stall timeout is over") {
  LocalGroup group(4, 30ms);
  const auto start = std::chrono::steady_clock::now();
  std::vector<Outcome> outcomes(4);
  std::vector<std::thread> threads;
  for (int rank : {0, 2, 3}) {  // rank 1 never joins
    threads.emplace_back([&, rank] {
      QueuedBackend backend;
      const auto comm = group.join(rank, backend);
      try {
        // Rank 3 arrives after the others have given up.
        while (rank == 3 && group.abort_cause().empty()) std::this_thread::sleep_for(1ms);
        comm->barrier();
      } catch (const Error& error) {
        outcomes[rank] = {error.kind(), error.what()};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(std::chrono::steady_clock::now() - start < 30s);
  const int first = outcomes[0].text.find("was stopped") == std::string::npos ? 0 : 2;
  const int second = 2 - first;
  const std::string cause = outcomes[first].text;
  CHECK(cause.find(fmt::format("rank {}: barrier (collective call 1) waited ", first)) == 0);
  CHECK(cause.find(" for rank 1 (never joined), rank 3 (before its first step; ") !=
        std::string::npos);
  CHECK(cause.find("makes no progress for 0.03 s has stalled (train.stall_timeout)") !=
        std::string::npos);
  CHECK(*outcomes[first].kind == ErrorKind::peer);
  CHECK(
      outcomes[second].text ==
      fmt::format("rank {}: barrier was stopped because rank {} failed: {}", second, first, cause));
  CHECK(outcomes[3].text ==
        fmt::format("rank 3: barrier was stopped because rank {} failed: {}", first, cause));
  CHECK(group.abort_cause() == cause);
}

TEST_CASE("a rank that beats is waited for; one that does not is named with its last activity") {
  LocalGroup group(3, 1s);
  std::atomic<int> beats{0};
  std::atomic<bool> over{false};
  const auto outcomes = run_ranks(group, 3, [&](Communicator& comm, QueuedBackend&) {
    if (comm.rank() == 1) {
      // Slow: the wait is longer than the timeout, but the rank is never quiet for that long.
      heartbeat_of_thread()->set_step(7);
      const auto until = std::chrono::steady_clock::now() + 1500ms;
      while (std::chrono::steady_clock::now() < until) {
        beat("reading samples");
        ++beats;
        std::this_thread::sleep_for(1ms);
      }
    }
    comm.barrier();
    if (comm.rank() == 1) {
      heartbeat_of_thread()->set_step(8);
      beat("writing a file");
      while (group.abort_cause().empty()) std::this_thread::sleep_for(1ms);
    }
    comm.barrier();
    over = true;
  });
  CHECK(beats > 0);
  CHECK(!over);
  CHECK(group.abort_cause().find("barrier (collective call 2) waited ") != std::string::npos);
  CHECK(group.abort_cause().find(" for rank 1 (step 8, writing a file; no heartbeat for 1.") !=
        std::string::npos);
}

TEST_CASE("a rank in one long call to the file system is waited for") {
  LocalGroup group(2, 30ms);
  const auto outcomes = run_ranks(group, 2, [&](Communicator& comm, QueuedBackend&) {
    if (comm.rank() == 1) {
      const SystemCall call("syncing a file to disk");
      std::this_thread::sleep_for(300ms);
    }
    comm.barrier();
  });
  CHECK(group.abort_cause().empty());
}

TEST_CASE("a thread that a replica starts beats for it") {
  LocalGroup group(2, 1min);
  const auto outcomes = run_ranks(group, 2, [&](Communicator&, QueuedBackend&) {
    const auto heartbeat = heartbeat_of_thread();
    const std::uint64_t before = heartbeat->beats();
    start_thread("a decoder", [] { beat("reading samples"); }).join();
    if (heartbeat->beats() != before + 1) fail(ErrorKind::unexpected, "no beat");
  });
  CHECK(first_failure(outcomes).empty());
}

// Runs `odd` on one rank and `usual` on the others. All must throw the same error and stay stopped.
void check_refused(int ranks, int odd_rank, const RankBody& usual, const RankBody& odd,
                   const std::string& expected) {
  LocalGroup group(ranks, 1min);
  const auto outcomes = run_ranks(
      group, ranks,
      [&](Communicator& comm, QueuedBackend& backend) {
        try {
          (comm.rank() == odd_rank ? odd : usual)(comm, backend);
        } catch (const Error&) {
          CHECK_THROWS_AS(comm.barrier(), Error);
          throw;
        }
      },
      false);
  for (int rank = 0; rank < ranks; ++rank) {
    const Outcome& outcome = outcomes[rank];
    REQUIRE(outcome.kind.has_value());
    CHECK(*outcome.kind == ErrorKind::peer);
    CHECK(outcome.text == fmt::format("rank {}: {}", rank, expected));
  }
  CHECK(group.abort_cause() == expected);
}

RankBody reduce_of(std::int64_t count, std::int64_t shards) {
  return [=](Communicator& comm, QueuedBackend& backend) {
    Floats buffer(backend, std::vector<float>(100));
    const PartialSum part{{comm.rank(), 0}, buffer.ptr()};
    comm.all_reduce(shards, {&part, 1}, buffer.ptr(), count);
  };
}

TEST_CASE("ranks that want different things are told what each wanted") {
  const RankBody barrier = calls().at("barrier");
  check_refused(3, 2, reduce_of(100, 3), barrier,
                "the ranks disagree: rank 0 called all_reduce of 100 floats over 3 shards, rank 2 "
                "called barrier");
  check_refused(2, 0, reduce_of(100, 2), reduce_of(99, 2),
                "the ranks disagree: rank 0 called all_reduce of 99 floats over 2 shards, rank 1 "
                "called all_reduce of 100 floats over 2 shards");
  const auto broadcast = [](std::size_t bytes, int root) {
    return [=](Communicator& comm, QueuedBackend&) {
      std::vector<std::byte> data(bytes);
      comm.broadcast(data, root);
    };
  };
  check_refused(4, 1, broadcast(8, 0), broadcast(9, 0),
                "the ranks disagree: rank 0 called broadcast of 8 bytes from rank 0, rank 1 called "
                "broadcast of 9 bytes from rank 0");
  check_refused(4, 3, broadcast(8, 0), broadcast(8, 1),
                "the ranks disagree: rank 0 called broadcast of 8 bytes from rank 0, rank 3 called "
                "broadcast of 8 bytes from rank 1");
  check_refused(2, 1, calls().at("all_gather"), barrier,
                "the ranks disagree: rank 0 called all_gather of 8 bytes per rank into 16, rank 1 "
                "called barrier");
  check_refused(2, -1, broadcast(8, 5), barrier, "broadcast: expected a root from 0 to 1, found 5");
  check_refused(2, -1, broadcast(8, 2), barrier, "broadcast: expected a root from 0 to 1, found 2");
  check_refused(3, -1, broadcast(8, -1), barrier,
                "broadcast: expected a root from 0 to 2, found -1");
  check_refused(
      2, -1,
      [](Communicator& comm, QueuedBackend&) {
        std::vector<std::byte> mine(8), all(8);
        comm.all_gather(mine, all);
      },
      barrier, "all_gather: expected room for 2 blocks of 8 bytes, found 8 bytes");
}

TEST_CASE("parts that do not cover the shards once are refused on all ranks") {
  check_refused(
      2, -1, reduce_of(10, 3), {},
      "all_reduce: expected parts that cover shards 0 to 2 once; they end after 2 shards");
  check_refused(
      3, -1, reduce_of(10, 2), {},
      "all_reduce: expected parts that cover shards 0 to 1 once, in rank order; found the "
      "node of shard 2, level 0 after 2 shards");
  check_refused(2, -1, reduce_of(10, 0), {}, "all_reduce: expected at least one shard, found 0");
}

TEST_CASE("a device that fails in the middle of a sum stops all ranks") {
  for (int ranks : {2, 4}) {
    for (int bad = 0; bad < ranks; ++bad) {
      LocalGroup group(ranks, 1min);
      const auto outcomes =
          run_ranks(group, ranks, [&](Communicator& comm, QueuedBackend& backend) {
            calls().at("all_reduce")(comm, backend);
            if (comm.rank() == bad) backend.fail_at_add = 1;
            calls().at("all_reduce")(comm, backend);
          });
      for (int rank = 0; rank < ranks; ++rank) {
        const std::string lost = "the device is lost";
        CHECK(outcomes[rank].text ==
              (rank == bad
                   ? lost
                   : fmt::format("rank {}: all_reduce was stopped because rank {} failed: {}", rank,
                                 bad, lost)));
      }
    }
  }
}

}  // namespace
}  // namespace dpt
