// Ranks as threads of several processes: the threads of a process add up their partial sums in its
// memory, and process links carry the results between the processes.
//
// Each process owns a range of the elements. It gets the others' sums of these elements, adds them
// in the order of the shard tree, and sends the result to all: two exchanges, with as many bytes as
// a ring allreduce. If there are few elements, each process sends all of them to every other, in
// one exchange. Either way the links only move bytes, and every process adds the same numbers in
// the same order, so the bits are those of one process.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "engine/collectives/communicator.h"
#include "engine/collectives/process_links.h"
#include "engine/collectives/watched_links.h"
#include "kernels/base/heartbeat.h"

namespace dpt {

class WorldGroup : public RankGroup {
 public:
  /// `ranks`: number of ranks of each process, in the order of the processes. `links_beside`, which
  /// may be null, carry the sums in host memory that overlap with the computation. `waiting`
  /// receives every wait except exchanges over `links`, which report their own (WatchedLinks). A
  /// waiting thread does not update its heartbeat.
  WorldGroup(const std::vector<int>& ranks, ProcessLinks& links, ProcessLinks* links_beside,
             std::chrono::milliseconds stall_timeout, const TellWaiting& waiting = {});
  ~WorldGroup() override;
  /// Creates the communicator of rank `local` of this process. The communicator's ranks are
  /// numbered over all processes.
  std::unique_ptr<Communicator> join(int local, Backend& backend) override;
  /// Breaks this process's links. Does not notify the other processes.
  void abort(int local, const std::string& cause) noexcept override;
  std::string abort_cause() const override;
  /// Returns the heartbeats of this process's ranks.
  std::vector<std::shared_ptr<Heartbeat>> heartbeats() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace dpt
