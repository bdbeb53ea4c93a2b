// Ranks as threads: exact sums, trees that do not depend on the number of ranks, small transfers.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <list>
#include <random>

#include "engine/collectives/gather_texts.h"
#include "engine/collectives/local_group.h"
#include "tests/engine/collectives/ranks.h"

namespace dpt {
namespace {

using Values = std::vector<float>;

// Returns a shard's values: floats of very different sizes, so that the order of additions shows.
Values shard_values(std::int64_t shard, std::int64_t count, bool exact) {
  std::mt19937 random(static_cast<std::uint32_t>(shard * 977 + 5));
  Values values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = exact ? static_cast<float>(random() % 1000)
                  : (static_cast<float>(random() >> 8) * 0x1p-23F - 1.0F) *
                        std::exp2(static_cast<float>(random() % 16));
  }
  return values;
}

Values sum_of(const std::vector<Values>& shards, std::int64_t first, int level) {
  if (level == 0) return shards[first];
  const std::int64_t half = std::int64_t{1} << (level - 1);
  Values sum = sum_of(shards, first, level - 1);
  if (first + half >= static_cast<std::int64_t>(shards.size())) return sum;
  const Values right = sum_of(shards, first + half, level - 1);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

enum class Out { own_buffer, first_part, last_part };

// Sums the shards. Each rank owns a range of shards and contributes its maximal nodes. Returns the
// results of all ranks.
std::vector<Values> reduce(int ranks, std::int64_t shards, std::int64_t count, bool exact, Out out,
                           int rounds = 1) {
  std::vector<Values> all;
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    all.push_back(shard_values(shard, count, exact));
  }
  std::vector<Values> results(static_cast<std::size_t>(ranks));
  const auto outcomes = run_ranks(ranks, [&](Communicator& comm, QueuedBackend& backend) {
    REQUIRE(comm.size() == ranks);
    for (int round = 0; round < rounds; ++round) {
      std::list<Floats> buffers;
      std::vector<PartialSum> parts;
      for (const TreeNode& node : maximal_nodes(shards, even_part(shards, ranks, comm.rank()))) {
        buffers.emplace_back(backend, sum_of(all, node.first, node.level));
        parts.push_back({node, buffers.back().ptr()});
      }
      if (out == Out::own_buffer || parts.empty()) {
        buffers.emplace_back(backend, Values(static_cast<std::size_t>(count), -1.0F));
      }
      Floats& result = out == Out::first_part && !parts.empty() ? buffers.front() : buffers.back();
      comm.all_reduce(shards, parts, result.ptr(), count);
      results[comm.rank()] = result.values();
    }
  });
  REQUIRE(first_failure(outcomes) == "");
  return results;
}

Values expected(std::int64_t shards, std::int64_t count, bool exact) {
  std::vector<Values> all;
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    all.push_back(shard_values(shard, count, exact));
  }
  int level = 0;
  while ((std::int64_t{1} << level) < shards) ++level;
  return sum_of(all, 0, level);
}

TEST_CASE("all_reduce of exact sums: 1 to 8 ranks, sizes 0, 1, odd and large, every kind of out") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (std::int64_t count : {0, 1, 15, 16, 17, 1001, 200'003}) {
      for (Out out : {Out::own_buffer, Out::first_part, Out::last_part}) {
        if (count > 2000 && out != Out::last_part) continue;
        CAPTURE(ranks);
        CAPTURE(count);
        const Values sum = expected(ranks, count, true);
        for (const Values& result : reduce(ranks, ranks, count, true, out)) {
          REQUIRE(result == sum);
        }
      }
    }
  }
}

TEST_CASE("all_reduce of trees: the bits do not depend on the ranks, some have no part") {
  for (std::int64_t shards : {1, 2, 3, 5, 8, 11, 16}) {
    const Values sum = expected(shards, 333, false);
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (Out out : {Out::own_buffer, Out::first_part, Out::last_part}) {
        CAPTURE(shards);
        CAPTURE(ranks);
        for (const Values& result : reduce(ranks, shards, 333, false, out)) REQUIRE(result == sum);
      }
    }
  }
}

TEST_CASE("thousands of rounds, with delays that differ") {
  for (int ranks : {2, 3, 5}) {
    const auto outcomes = run_ranks(ranks, [&](Communicator& comm, QueuedBackend& backend) {
      std::mt19937 random(static_cast<std::uint32_t>(comm.rank()));
      Floats buffer(backend, Values(40));
      for (int round = 0; round < 3000; ++round) {
        const Values mine(40, static_cast<float>(round + comm.rank()));
        backend.upload(buffer.ptr(), mine.data(), 160);
        const PartialSum part{{comm.rank(), 0}, buffer.ptr()};
        if (random() % 64 == 0) std::this_thread::yield();
        if (random() % 1024 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        comm.all_reduce(ranks, {&part, 1}, buffer.ptr(), 40);
        const float sum = static_cast<float>(ranks * round + ranks * (ranks - 1) / 2);
        if (buffer.values() != Values(40, sum)) throw std::runtime_error("wrong sum");
        if (round % 16 == 0) comm.barrier();
      }
    });
    CHECK(first_failure(outcomes) == "");
  }
}

TEST_CASE("broadcast from every root, and of nothing") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const auto outcomes = run_ranks(ranks, [&](Communicator& comm, QueuedBackend&) {
      for (int root = 0; root < ranks; ++root) {
        std::vector<std::byte> data(1000, static_cast<std::byte>(comm.rank()));
        comm.broadcast(data, root);
        if (data != std::vector<std::byte>(1000, static_cast<std::byte>(root))) {
          throw std::runtime_error("wrong bytes");
        }
      }
      comm.broadcast({}, 0);
    });
    CHECK(first_failure(outcomes) == "");
  }
}

TEST_CASE("all_gather keeps rank order") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const auto outcomes = run_ranks(ranks, [&](Communicator& comm, QueuedBackend&) {
      const std::vector<std::byte> mine(3, static_cast<std::byte>(comm.rank() + 1));
      std::vector<std::byte> all(static_cast<std::size_t>(3 * ranks));
      comm.all_gather(mine, all);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i] != static_cast<std::byte>(i / 3 + 1)) throw std::runtime_error("wrong bytes");
      }
      comm.all_gather({}, {});
    });
    CHECK(first_failure(outcomes) == "");
  }
}

TEST_CASE("texts of any length are gathered in rank order") {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const auto outcomes = run_ranks(ranks, [&](Communicator& comm, QueuedBackend&) {
      const auto text_of = [](int rank) {
        return std::string(static_cast<std::size_t>(rank), 'x');
      };
      const std::vector<std::string> all = gather_texts(comm, text_of(comm.rank()));
      for (int rank = 0; rank < ranks; ++rank) {
        if (all.at(static_cast<std::size_t>(rank)) != text_of(rank)) {
          throw std::runtime_error("wrong text");
        }
      }
      if (gather_texts(comm, "") != std::vector<std::string>(all.size())) {
        throw std::runtime_error("a text where all are empty");
      }
    });
    CHECK(first_failure(outcomes) == "");
  }
}

TEST_CASE("a barrier holds everybody until the last one comes") {
  for (int ranks : {2, 4, 7}) {
    std::atomic<int> arrived{0};
    const auto outcomes = run_ranks(ranks, [&](Communicator& comm, QueuedBackend&) {
      for (int round = 1; round <= 200; ++round) {
        ++arrived;
        comm.barrier();
        if (arrived < round * ranks) throw std::runtime_error("left too early");
        comm.barrier();
      }
    });
    CHECK(first_failure(outcomes) == "");
  }
}

TEST_CASE("trees that change from call to call on one communicator") {
  for (int ranks : {1, 2, 3}) {
    const auto outcomes = run_ranks(ranks, [&](Communicator& comm, QueuedBackend& backend) {
      const auto reduce_ones = [&](std::int64_t shards, std::int64_t owned) {
        std::list<Floats> buffers;
        std::vector<PartialSum> parts;
        const Range mine = even_part(owned, ranks, comm.rank());
        for (std::int64_t shard = mine.begin; shard < mine.end; ++shard) {
          buffers.emplace_back(backend, Values(20, 1.0F));
          parts.push_back({{shard, 0}, buffers.back().ptr()});
        }
        Floats out(backend, Values(20));
        comm.all_reduce(shards, parts, out.ptr(), 20);
        return out.values();
      };
      for (std::int64_t shards : {4, 3, 3, 7, 1, 4, 2}) {
        if (reduce_ones(shards, shards) != Values(20, static_cast<float>(shards))) {
          throw std::runtime_error("wrong sum");
        }
      }
      // These are the nodes of the previous call, but of a larger tree.
      reduce_ones(3, 2);
    });
    for (const Outcome& outcome : outcomes) {
      CHECK(outcome.text.find("they end after 2 shards") != std::string::npos);
    }
  }
}

TEST_CASE("a world of one adds its own parts, whatever they are") {
  const Values sum = expected(5, 100, false);
  std::vector<Values> all;
  for (std::int64_t shard = 0; shard < 5; ++shard) all.push_back(shard_values(shard, 100, false));
  LocalGroup group(1);
  QueuedBackend backend;
  const auto comm = group.join(0, backend);
  CHECK(comm->rank() == 0);
  CHECK(comm->size() == 1);
  std::list<Floats> buffers;
  std::vector<PartialSum> parts;
  for (std::int64_t shard = 0; shard < 5; ++shard) {
    buffers.emplace_back(backend, all[shard]);
    parts.push_back({{shard, 0}, buffers.back().ptr()});
  }
  comm->all_reduce(5, parts, buffers.back().ptr(), 100);
  CHECK(buffers.back().values() == sum);
  comm->barrier();
}

TEST_CASE("where a device cannot reach another's memory, sums are made in the host's") {
  for (int ranks : {2, 3, 5}) {
    for (int blind = 0; blind <= ranks; ++blind) {  // in the last round, all are blind
      CAPTURE(ranks);
      CAPTURE(blind);
      const auto outcomes = run_ranks(ranks, [&](Communicator& comm, QueuedBackend& backend) {
        backend.reaches_others = blind != ranks && comm.rank() != blind;
        // First more parts, then more floats, then fewer again.
        for (const auto& [shards, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
                 {2, 17}, {2, 3}, {7, 3}, {7, 1001}, {11, 40}, {1, 2000}, {5, 16}}) {
          std::vector<Values> all;
          for (std::int64_t shard = 0; shard < shards; ++shard) {
            all.push_back(shard_values(shard, count, false));
          }
          std::list<Floats> buffers;
          std::vector<PartialSum> parts;
          for (const TreeNode& node :
               maximal_nodes(shards, even_part(shards, ranks, comm.rank()))) {
            buffers.emplace_back(backend, sum_of(all, node.first, node.level));
            parts.push_back({node, buffers.back().ptr()});
          }
          Floats out(backend, Values(static_cast<std::size_t>(count), -1.0F));
          comm.all_reduce(shards, parts, out.ptr(), count);
          if (out.values() != expected(shards, count, false)) {
            throw std::runtime_error("wrong sum");
          }
        }
        // No device waited for an event of another device.
        if (!backend.waited_for.empty()) throw std::runtime_error("waited for a device");
      });
      CHECK(first_failure(outcomes) == "");
    }
  }
}

TEST_CASE("queues wait for each other: for all parts before a sum, for all readers after it") {
  constexpr int kRanks = 3;
  std::vector<std::vector<const Event*>> recorded(kRanks), waited_for(kRanks);
  const auto outcomes = run_ranks(kRanks, [&](Communicator& comm, QueuedBackend& backend) {
    Floats buffer(backend, Values(100, 1.0F));
    const PartialSum part{{comm.rank(), 0}, buffer.ptr()};
    comm.all_reduce(kRanks, {&part, 1}, buffer.ptr(), 100);
    recorded[comm.rank()] = backend.recorded;
    waited_for[comm.rank()] = backend.waited_for;
    buffer.values();
    comm.barrier();
  });
  REQUIRE(first_failure(outcomes) == "");
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    REQUIRE(recorded[rank].size() == 2);
    CHECK(recorded[rank][0] != recorded[rank][1]);
    std::vector<const Event*> want;
    for (const std::size_t which : {0, 1}) {
      for (std::size_t other = 0; other < kRanks; ++other) {
        if (other != rank) want.push_back(recorded[other][which]);
      }
    }
    CHECK(waited_for[rank] == want);
  }
}

TEST_CASE("only GPUs overlap their sums; every rank is told why the others do not") {
  for (int ranks : {1, 2, 3}) {
    std::vector<std::string> reasons(static_cast<std::size_t>(ranks));
    const auto outcomes = run_ranks(ranks, [&](Communicator& comm, QueuedBackend&) {
      std::string& why = reasons[comm.rank()];
      if (comm.set_up_overlapped_sums(why)) throw std::runtime_error("overlapped");
      comm.barrier();
    });
    CHECK(first_failure(outcomes) == "");
    for (const std::string& why : reasons) {
      CHECK(why == reasons[0]);
      if (ranks == 1) {
        CHECK(why == "there is one replica");
      } else {
        // The reason depends on whether this dpt is built with CUDA.
        CHECK((why == "not all devices are GPUs" || why.find("without CUDA") != std::string::npos));
      }
    }
  }
}

TEST_CASE("a group has one rank at least") {
  CHECK_THROWS_WITH_AS(LocalGroup(0), "expected 1 to 65535 replicas, found 0", Error);
  CHECK_THROWS_AS(LocalGroup(65536), Error);
  CHECK_NOTHROW(LocalGroup(1));
  CHECK_NOTHROW(LocalGroup(65535));
}

TEST_CASE("parts that are not nodes of the tree are refused") {
  LocalGroup group(1);
  QueuedBackend backend;
  const auto comm = group.join(0, backend);
  Floats one(backend, Values(4, 1.0F)), two(backend, Values(4, 2.0F));
  const auto refused = [&](std::int64_t shards, const std::vector<TreeNode>& nodes) -> std::string {
    std::vector<PartialSum> parts;
    for (const TreeNode& node : nodes) {
      parts.push_back({node, parts.empty() ? one.ptr() : two.ptr()});
    }
    try {
      comm->all_reduce(shards, parts, one.ptr(), 4);
    } catch (const Error& error) {
      const std::string text = error.what();
      return text.substr(text.find("found the node"));
    }
    return {};
  };
  CHECK(refused(3, {{0, 0}, {1, 1}}) == "found the node of shard 1, level 1 after 1 shards");
  CHECK(refused(4, {{0, 1}, {2, 2}}) == "found the node of shard 2, level 2 after 2 shards");
  CHECK(refused(1, {{0, -1}}) == "found the node of shard 0, level -1 after 0 shards");
  CHECK(refused(1, {{0, 62}}) == "found the node of shard 0, level 62 after 0 shards");
  CHECK(refused(1, {{0, 61}}).empty());
}

TEST_CASE("a world of one refuses what several would refuse") {
  LocalGroup group(1);
  QueuedBackend backend;
  const auto comm = group.join(0, backend);
  std::vector<std::byte> mine(8, std::byte{7}), all(9);
  CHECK_THROWS_WITH_AS(comm->broadcast(mine, 1), "rank 0: broadcast: expected root 0, found 1",
                       Error);
  CHECK_NOTHROW(comm->broadcast(mine, 0));
  CHECK_THROWS_WITH_AS(comm->all_gather(mine, all),
                       "rank 0: all_gather: expected room for 1 block of 8 bytes, found 9 bytes",
                       Error);
  all.resize(8);
  comm->all_gather(mine, all);
  CHECK((all == mine));
  Floats buffer(backend, Values(4, 1.0F));
  const PartialSum part{{0, 0}, buffer.ptr()};
  CHECK_THROWS_WITH_AS(comm->all_reduce(2, {&part, 1}, buffer.ptr(), 4),
                       "rank 0: all_reduce: expected parts that cover shards 0 to 1 once; they end "
                       "after 1 shards",
                       Error);
  // The same wrong parts fail again, and the right ones are still added.
  CHECK_THROWS_AS(comm->all_reduce(2, {&part, 1}, buffer.ptr(), 4), Error);
  Floats second(backend, Values(4, 2.0F));
  const PartialSum both[] = {part, {{1, 0}, second.ptr()}};
  comm->all_reduce(2, both, buffer.ptr(), 4);
  CHECK(buffer.values() == Values(4, 3.0F));
  comm->abort("because");
  CHECK(group.abort_cause() == "because");
  CHECK(comm->can_be_recorded());
}

}  // namespace
}  // namespace dpt
