// Sums over GPUs by the vendor's library (kernels/peer_sums.h), as the ranks of a process share
// them. All processes of a world agree on them, step by step: none connects its GPUs while another
// does not, and one that cannot is named on all of them.
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

/// Why the GPUs of processes that say this of themselves cannot be connected: who is the first that
/// cannot, and why. Empty: they can. Of one process alone it says no process.
std::string problem_of_peers(const std::vector<PeerReadiness>& processes);

class SharedPeerSums {
 public:
  /// By one rank of each process, while the other ranks of its process wait; collective. `links` is
  /// null where there is one process. Why there are no sums, the same text in all processes; empty:
  /// get() has them from now on. Throws where another process fails meanwhile, and, in a world of
  /// one process, what the library says.
  std::string set_up(std::span<Backend* const> backends, std::span<const int> ranks_of,
                     ProcessLinks* links, const TellWaiting& waiting);
  /// For ranks, after they have met the one that set them up; null: there are none.
  PeerSums* get() const { return sums_.get(); }
  /// Any thread, any number of times, before, while and after they are set up.
  void abort() noexcept;

 private:
  void replace(std::unique_ptr<PeerSums> sums);

  std::mutex mutex_;                ///< between the rank that sets up and one that aborts
  std::unique_ptr<PeerSums> sums_;  // written by the former, guarded by mutex_
  bool was_aborted_ = false;        // guarded by mutex_
};

}  // namespace dpt
