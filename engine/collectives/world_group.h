// Ranks as threads of several processes: sums are made of what the threads of a process add up in
// its memory and what process links carry between the processes.
//
// Each process owns a range of the elements. It gets the others' sums of these elements, adds them
// in the order of the shard tree, and sends the result to all: two exchanges, as many bytes as a
// ring. Few elements travel whole, in one exchange. Either way the links only move bytes, and every
// process adds the same numbers in the same order, so that the bits are those of one process.
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
  /// `ranks`: how many each process has, in the order of the processes. `links_beside`, which may
  /// be null, carry sums of host memory that overlap with the computation. `waiting` is told of
  /// waits that are no exchange of `links`, which tell theirs themselves (WatchedLinks); the thread
  /// that waits does not beat meanwhile.
  WorldGroup(const std::vector<int>& ranks, ProcessLinks& links, ProcessLinks* links_beside,
             std::chrono::milliseconds stall_timeout, const TellWaiting& waiting = {});
  ~WorldGroup() override;
  /// The communicator's ranks count over all processes.
  std::unique_ptr<Communicator> join(int local, Backend& backend) override;
  /// Breaks this process' links, but tells the other processes nothing.
  void abort(int local, const std::string& cause) noexcept override;
  std::string abort_cause() const override;
  /// Returns the heartbeats of this process' ranks.
  std::vector<std::shared_ptr<Heartbeat>> heartbeats() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace dpt
