// Sums over GPUs by the vendor's library (kernels/peer_sums.h), shared by the ranks of a process.
// All processes of a world agree on each step: none connects its GPUs if another cannot, and all
// report the same reason.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/collectives/process_links.h"
#include "engine/collectives/watched_links.h"
#include "kernels/peer_sums.h"

namespace dpt {

/// Returns an error that names the first process whose GPUs cannot be connected, and the reason;
/// empty if all can. Omits the process if there is only one.
std::string problem_of_peers(const std::vector<PeerReadiness>& processes);

class SharedPeerSums {
 public:
  /// Sets up the sums. Called by one rank of each process while the other ranks of its process
  /// wait; collective. `links` is null if there is one process. Returns the reason why there are no
  /// sums, the same text in all processes; empty if get() returns them from now on. Throws if
  /// another process fails meanwhile and, in a world of one process, if the library reports an
  /// error.
  std::string set_up(std::span<Backend* const> backends, std::span<const int> ranks_of,
                     ProcessLinks* links, const TellWaiting& waiting);
  /// Returns the sums; null if there are none. Call it only after a meeting with the rank that
  /// called set_up.
  PeerSums* get() const { return sums_.get(); }
  /// Aborts the sums. Callable from any thread, any number of times, before, during and after
  /// set_up.
  void abort() noexcept;

 private:
  void replace(std::unique_ptr<PeerSums> sums);

  std::mutex mutex_;                ///< held by a rank that sets up or aborts the sums
  std::unique_ptr<PeerSums> sums_;  // written by the rank in set_up, guarded by mutex_
  bool was_aborted_ = false;        // guarded by mutex_
};

}  // namespace dpt
