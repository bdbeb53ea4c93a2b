// Sums over several GPUs by the vendor's library (NCCL), overlapped with the computation; the GPUs
// may be in several processes. For large gradients in fast mode: the order of the additions is the
// library's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace dpt {

/// The ranks of a sum: this process has `first`, `first + 1` and so on of `total`.
struct PeerWorld {
  int total = 0, first = 0;
  std::string id;  ///< result of make_peer_id, the same in all processes
};

/// Report of a process about its GPUs before any process connects them.
struct PeerReadiness {
  struct Gpu {
    std::string name;   ///< in this process: "cuda:0"
    std::string uuid;   ///< the same in whatever container
    std::string place;  ///< machine and PCI bus: the parts of a GPU have one place
  };
  std::string why_not;    ///< empty: they can be connected to others
  std::string library;    ///< "NCCL 2.28.9"; all processes must have the same
  std::vector<Gpu> gpus;  ///< one per rank of this process; no two of all processes may be the same
};

/// One object for all ranks of a process, which count in the process. Rank r's functions are called
/// by its own thread; all ranks, of all processes, begin the same sums in the same order.
class PeerSums {
 public:
  virtual ~PeerSums() = default;
  /// Once, before all others but abort, by one thread while the ranks' wait; collective over the
  /// processes. Throws ErrorKind::device when the library fails or others do not come within
  /// minutes, ErrorKind::peer when it is aborted.
  virtual void connect(const PeerWorld& world) = 0;
  /// data[i] = sum over ranks of data[i], for `count` floats in place: starts when what rank's
  /// backend has queued so far has run, overlapped with what it queues next.
  virtual void begin(int rank, DevPtr data, std::int64_t count) = 0;
  /// Orders all work that the rank's backend queues from now on after all sums begun.
  virtual void finish(int rank) = 0;
  /// Called before the memory of sums is freed: aborts them if any that this rank began still runs,
  /// because freeing memory waits for the GPU, and that for ranks which may not arrive.
  virtual void stop(int rank) noexcept = 0;
  /// Aborts sums in which GPUs wait for ranks that will not arrive; begin and finish throw
  /// ErrorKind::peer from then on. What was queued after an aborted sum runs, on data that are not
  /// the sum. Any thread, any number of times, also while another is inside connect, begin or
  /// finish; returns soon.
  virtual void abort() noexcept = 0;
  /// Throws ErrorKind::peer, with the reason, if sums were aborted. A result that the host had from
  /// the GPU before a call that does not throw followed from whole sums.
  virtual void require_whole() const = 0;
};

/// Queues nothing and waits for nobody. Never throws.
PeerReadiness peer_readiness(std::span<Backend* const> backends) noexcept;
/// For one set of PeerSums; made by one of its processes, which must live until all are connected.
/// Throws ErrorKind::device when the library fails.
std::string make_peer_id();
/// REQUIRES: peer_readiness says that they can. Throws ErrorKind::device.
std::unique_ptr<PeerSums> make_peer_sums(std::span<Backend* const> backends);

}  // namespace dpt
