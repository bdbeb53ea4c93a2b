// Worlds of several processes within one process: each is a group of threads, linked by TCP.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "engine/collectives/process_links.h"
#include "engine/collectives/tcp_links.h"
#include "engine/collectives/world_group.h"

namespace dpt {

using Layout = std::vector<int>;  ///< ranks of each process

inline int ranks_in(const Layout& layout) {
  return std::accumulate(layout.begin(), layout.end(), 0);
}

/// In-memory collectives through which the processes of a test exchange data.
class Gathering {
 public:
  explicit Gathering(int size) : size_(static_cast<std::size_t>(size)), rounds_of_(size_) {}
  std::vector<std::string> gather(int rank, const std::string& mine) {
    std::unique_lock lock(mutex_);
    const std::size_t round = rounds_of_[rank]++;
    if (round == rounds_.size()) rounds_.push_back({std::vector<std::string>(size_), 0});
    rounds_[round].texts[rank] = mine;
    ++rounds_[round].here;
    changed_.notify_all();
    changed_.wait(lock, [&] { return rounds_[round].here == size_; });
    return rounds_[round].texts;
  }

 private:
  struct Round {
    std::vector<std::string> texts;
    std::size_t here;
  };
  const std::size_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> rounds_of_;  ///< by rank: number of gatherings that it took part in
  std::vector<Round> rounds_;
};

/// Returns options for links on this machine.
inline LinkOptions local_links(int rank, int size) {
  LinkOptions options;
  options.rank = rank;
  options.size = size;
  options.address = "127.0.0.1";
  options.secret = "of this test";
  return options;
}

/// The position of a thread in its world.
struct WorldRank {
  int process, local;
  WorldGroup& group;
  ProcessLinks& links;
};

struct WorldOptions {
  /// True if a failure aborts every process, as with the control channel; false if it aborts only
  /// its own.
  bool tells_all = false;
  /// Receives the process and the operation in which it waits.
  std::function<void(int process, const char* operation)> waiting;
};

/// Runs `body` on every rank of every process. Returns the first error of each rank, by rank.
inline std::vector<std::string> run_processes(const Layout& layout,
                                              const std::function<void(WorldRank&)>& body,
                                              const WorldOptions& options = {}) {
  const int processes = static_cast<int>(layout.size());
  Gathering gathering(processes);
  std::mutex mutex;
  std::vector<WorldGroup*> groups;  // guarded by mutex
  std::vector<std::vector<std::string>> errors(layout.size());
  std::vector<std::thread> threads;
  for (int p = 0; p < processes; ++p) {
    const auto ranks = static_cast<std::size_t>(layout[p]);
    errors[p].resize(ranks);
    threads.emplace_back([&, p, ranks] {
      const auto gather = [&](const std::string& mine) { return gathering.gather(p, mine); };
      auto links = make_tcp_links(local_links(p, processes), gather);
      auto beside = make_tcp_links(local_links(p, processes), gather);
      std::function<void(const char*)> waiting;
      if (options.waiting) waiting = [&](const char* text) { options.waiting(p, text); };
      auto owned = std::make_unique<WorldGroup>(layout, *links, beside.get(),
                                                std::chrono::minutes(1), waiting);
      WorldGroup& group = *owned;
      {
        const std::lock_guard lock(mutex);
        groups.push_back(&group);
      }
      gather("all groups are known");
      std::vector<std::thread> own;
      for (int local = 0; local < static_cast<int>(ranks); ++local) {
        own.emplace_back([&, local] {
          std::string& error = errors[p][local];
          WorldRank rank{p, local, group, *links};
          try {
            body(rank);
          } catch (const std::exception& caught) {
            error = caught.what();
            group.abort(local, error);
            const std::lock_guard lock(mutex);
            for (WorldGroup* other : groups) {
              if (options.tells_all && other != &group) other->abort(0, error);
            }
          }
        });
      }
      for (std::thread& thread : own) thread.join();
      const auto& mine = errors[p];
      const bool has_failed =
          std::any_of(mine.begin(), mine.end(), [](const auto& error) { return !error.empty(); });
      if (has_failed && !options.tells_all) {
        // A process that ends breaks its links, which the others notice.
        owned.reset();
        beside.reset();
        links.reset();
      }
      // A process that still works must not lose the data or the group of this one.
      gather("has ended");
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> all;
  for (const auto& of_process : errors) all.insert(all.end(), of_process.begin(), of_process.end());
  return all;
}

}  // namespace dpt
