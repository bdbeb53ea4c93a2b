// Ranks as threads of several processes: the same bits as in one process, in any layout. The
// "processes" are groups of threads here, linked by TCP.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <list>
#include <random>
#include <thread>

#include "engine/collectives/process_links.h"
#include "engine/collectives/tcp_links.h"
#include "engine/collectives/world_group.h"
#include "tests/engine/collectives/ranks.h"
#include "tests/engine/collectives/worlds.h"

namespace dpt {
namespace {

using WorldBody = std::function<void(Communicator&, QueuedBackend&, ProcessLinks&)>;

/// Runs `body` on every rank of every process. Returns the first error of each rank, by rank.
std::vector<std::string> run_world(const Layout& layout, const WorldBody& body,
                                   bool in_host_memory = false) {
  return run_processes(layout, [&](WorldRank& rank) {
    QueuedBackend backend;
    const auto host = make_cpu_backend(1);
    Backend& joining = in_host_memory ? *host : static_cast<Backend&>(backend);
    body(*rank.group.join(rank.local, joining), backend, rank.links);
  });
}

std::vector<float> values_of(std::int64_t shard, std::int64_t count) {
  std::mt19937 random(static_cast<std::uint32_t>(shard * 977 + 5));
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = (static_cast<float>(random() >> 8) * 0x1p-23F - 1.0F) *
            std::exp2(static_cast<float>(random() % 16));
  }
  return values;
}

std::vector<float> tree_of(std::int64_t shards, std::int64_t first, int level, std::int64_t count) {
  if (level == 0) return values_of(first, count);
  const std::int64_t half = std::int64_t{1} << (level - 1);
  std::vector<float> sum = tree_of(shards, first, level - 1, count);
  if (first + half >= shards) return sum;
  const std::vector<float> right = tree_of(shards, first + half, level - 1, count);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

int level_of_root(std::int64_t shards) {
  int level = 0;
  while ((std::int64_t{1} << level) < shards) ++level;
  return level;
}

/// Returns the sums that the ranks get. Each rank contributes the shards that `owners` assigns to
/// it, as maximal nodes.
std::vector<std::vector<float>> reduce_in_world(const Layout& layout, std::int64_t shards,
                                                std::int64_t count,
                                                const std::vector<Range>& owners, int rounds = 2) {
  std::vector<std::vector<float>> results(static_cast<std::size_t>(ranks_in(layout)));
  const auto errors =
      run_world(layout, [&](Communicator& comm, QueuedBackend& backend, ProcessLinks&) {
        const auto rank = static_cast<std::size_t>(comm.rank());
        for (int round = 0; round < rounds; ++round) {
          std::list<Floats> buffers;
          std::vector<PartialSum> parts;
          for (const TreeNode& node : maximal_nodes(shards, owners[rank])) {
            buffers.emplace_back(backend, tree_of(shards, node.first, node.level, count));
            parts.push_back({node, buffers.back().ptr()});
          }
          if (parts.empty()) {
            buffers.emplace_back(backend, std::vector<float>(static_cast<std::size_t>(count)));
          }
          comm.all_reduce(shards, parts, buffers.front().ptr(), count, {owners, false});
          results[rank] = buffers.front().values();
        }
      });
  for (const std::string& error : errors) CHECK(error == "");
  return results;
}

TEST_CASE("The sum has the same bits on every layout of ranks over processes") {
  for (const Layout& layout :
       {Layout{1, 1}, Layout{2, 2}, Layout{1, 1, 1}, Layout{3, 1}, Layout{1, 2, 1, 3}}) {
    for (const std::int64_t shards : {7, 8}) {
      // Sizes range from one cache line to more than is sent as a whole.
      for (const std::int64_t count : {1, 100, 30'000}) {
        CAPTURE(layout.size());
        CAPTURE(ranks_in(layout));
        CAPTURE(shards);
        CAPTURE(count);
        const int ranks = ranks_in(layout);
        std::vector<Range> owners;
        for (int r = 0; r < ranks; ++r) owners.push_back(even_part(shards, ranks, r));
        const auto expected = tree_of(shards, 0, level_of_root(shards), count);
        for (const auto& result : reduce_in_world(layout, shards, count, owners)) {
          CHECK(result == expected);
        }
      }
    }
  }
}

TEST_CASE("Ranks and whole processes without shards take part in a sum") {
  const Layout layout{2, 1, 1};
  const std::vector<Range> owners = {{0, 1}, {1, 1}, {1, 3}, {3, 3}};
  const auto expected = tree_of(3, 0, 2, 20'000);
  for (const auto& result : reduce_in_world(layout, 3, 20'000, owners)) CHECK(result == expected);
}

TEST_CASE("A sum in any order is one and the same on all ranks, run after run") {
  const Layout layout{3, 3, 1};
  const std::int64_t count = 20'000;
  const auto run = [&] {
    std::vector<std::vector<float>> results(7);
    const auto errors =
        run_world(layout, [&](Communicator& comm, QueuedBackend& backend, ProcessLinks&) {
          Floats buffer(backend, values_of(comm.rank(), count));
          const PartialSum part{{comm.rank(), 0}, buffer.ptr()};
          comm.all_reduce(7, {&part, 1}, buffer.ptr(), count, {{}, true});
          results[comm.rank()] = buffer.values();
        });
    for (const std::string& error : errors) CHECK(error == "");
    return results;
  };
  const auto first = run();
  for (const auto& result : first) CHECK(result == first[0]);
  CHECK(run()[3] == first[3]);
  const std::vector<float> exact = tree_of(7, 0, 3, count);
  for (std::size_t i = 0; i < exact.size(); i += 97) {
    CHECK(first[0][i] == doctest::Approx(exact[i]).epsilon(1e-3));
  }
}

DevPtr at(std::vector<float>& values, std::int64_t first = 0) {
  return DevPtr{reinterpret_cast<std::uintptr_t>(values.data() + first)};
}

TEST_CASE("Sums that overlap with the computation are the sums in any order") {
  const Layout layout{2, 1, 2};
  const std::int64_t count = 30'000;
  std::vector<std::vector<float>> results(5), expected(5);
  const auto body = [&](Communicator& comm, QueuedBackend&, ProcessLinks&) {
    std::string why_not;
    if (!comm.set_up_overlapped_sums(why_not)) throw Error(ErrorKind::unexpected, why_not);
    std::vector<float> data;
    for (int round = 0; round < 3; ++round) {
      data = values_of(comm.rank(), count);
      // Buckets of all sizes, while other collectives run at the same time.
      for (std::int64_t begin = 0; begin < count;) {
        const std::int64_t size = std::min(count - begin, begin + 1);
        comm.sum_overlapped(at(data, begin), size);
        begin += size;
        if (begin == 1) comm.barrier();
      }
      comm.finish_sums();
    }
    results[comm.rank()] = data;
    data = values_of(comm.rank(), count);
    const PartialSum part{{comm.rank(), 0}, at(data)};
    comm.all_reduce(5, {&part, 1}, at(data), count, {{}, true});
    expected[comm.rank()] = data;
  };
  for (const std::string& error : run_world(layout, body, true)) CHECK(error == "");
  for (std::size_t rank = 0; rank < 5; ++rank) CHECK(results[rank] == expected[rank]);
}

TEST_CASE("A process that fails ends the overlapped sums of the others") {
  const auto body = [&](Communicator& comm, QueuedBackend&, ProcessLinks&) {
    std::string why_not;
    comm.set_up_overlapped_sums(why_not);
    if (comm.rank() == 1) throw Error(ErrorKind::data, "no such image");
    std::vector<float> data(100);
    comm.sum_overlapped(at(data), 100);
    comm.finish_sums();
  };
  const auto errors = run_world({1, 1}, body, true);
  CHECK(errors[1] == "no such image");
  CHECK(errors[0].find("the connection to rank 1 broke") != std::string::npos);
}

TEST_CASE("Small transfers reach every rank of every process") {
  const Layout layout{2, 1, 2};
  const auto errors = run_world(layout, [&](Communicator& comm, QueuedBackend&, ProcessLinks&) {
    CHECK(comm.size() == 5);
    for (int root = 0; root < comm.size(); ++root) {
      int value = comm.rank() == root ? 100 + root : -1;
      comm.broadcast(std::as_writable_bytes(std::span(&value, 1)), root);
      CHECK(value == 100 + root);
    }
    const int mine = 10 * comm.rank();
    std::vector<int> all(5, -1);
    comm.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    CHECK(all == std::vector<int>{0, 10, 20, 30, 40});
    comm.all_gather({}, {});
    comm.broadcast({}, 1);
    comm.barrier();
  });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("Parts that are not those of the process' shards are refused") {
  const auto errors =
      run_world({1, 1}, [&](Communicator& comm, QueuedBackend& backend, ProcessLinks& links) {
        Floats buffer(backend, std::vector<float>(64));
        const PartialSum part{{0, 0}, buffer.ptr()};  // rank 1 owns this part too
        try {
          comm.all_reduce(2, {&part, 1}, buffer.ptr(), 64);
        } catch (const Error& error) {
          CHECK(error.kind() == ErrorKind::peer);
          links.abort(error.what());
          throw;
        }
      });
  CHECK(errors[1].find("expected parts that cover shards 1 to 1 once") != std::string::npos);
}

TEST_CASE("An abort wakes the ranks of its process that wait for another process") {
  std::vector<std::string> errors =
      run_world({2, 1}, [&](Communicator& comm, QueuedBackend&, ProcessLinks&) {
        if (comm.rank() == 2) throw Error(ErrorKind::data, "no such image");
        comm.barrier();
      });
  CHECK(errors[2] == "no such image");
  // The links end with their process; a rank that waits for it finds them broken.
  for (const int rank : {0, 1}) {
    const std::string& error = errors[rank];
    CAPTURE(error);
    CHECK(error.find("the connection to rank 1 broke") != std::string::npos);
  }
}

TEST_CASE("Exchanges of an aborted process end with the cause") {
  Gathering gathering(2);
  std::vector<std::thread> threads;
  for (int p = 0; p < 2; ++p) {
    threads.emplace_back([&, p] {
      const auto links = make_tcp_links(
          local_links(p, 2), [&](const std::string& mine) { return gathering.gather(p, mine); });
      std::byte in{0}, out{1};
      std::vector<std::span<const std::byte>> send(2);
      std::vector<std::span<std::byte>> receive(2);
      receive[1 - p] = {&in, 1};
      std::thread aborter([&] { links->abort("rank 7 fell over"); });
      std::string text;
      try {
        links->exchange(send, receive, "barrier");
      } catch (const Error& error) {
        text = error.what();
      }
      aborter.join();
      CHECK(text.find("rank 7 fell over") != std::string::npos);
      send[1 - p] = {&out, 1};
      CHECK_THROWS_AS(links->exchange(send, receive, "barrier"), Error);
      // Closing a link earlier would break the link of the other process.
      gathering.gather(p, "has ended");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace dpt
