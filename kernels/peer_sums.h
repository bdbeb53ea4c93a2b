// Sums over several GPUs, computed by the vendor's library (NCCL) and overlapped with the
// computation. The GPUs may belong to several processes. Meant for large gradients in fast mode,
// because the library decides the order of the additions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace dpt {

/// Ranks of a sum: `total` ranks over all processes. This process has the ranks from `first` on.
struct PeerWorld {
  int total = 0, first = 0;
  std::string id;  ///< result of make_peer_id, the same in all processes
};

/// A process's report about its GPUs, made before any process connects them.
struct PeerReadiness {
  struct Gpu {
    std::string name;   ///< in this process: "cuda:0"
    std::string uuid;   ///< the same inside every container
    std::string place;  ///< machine and PCI bus; all parts of a GPU have the same place
  };
  std::string why_not;  ///< reason why these GPUs cannot be connected to others; empty if they can
  std::string library;  ///< "NCCL 2.28.9"; all processes must have the same version
  std::vector<Gpu> gpus;  ///< one per rank of this process; no GPU may occur twice
};

/// Sums over all ranks. There is one object per process, and rank numbers passed to it count within
/// the process. Each rank's functions are called by that rank's thread. All ranks of all processes
/// must begin the same sums in the same order.
class PeerSums {
 public:
  virtual ~PeerSums() = default;
  /// Connects the processes; collective over all of them. Call it once, from one thread while the
  /// ranks' threads wait, before all other functions except abort. Throws ErrorKind::device if the
  /// library fails or other processes do not arrive within minutes, and ErrorKind::peer if it is
  /// aborted.
  virtual void connect(const PeerWorld& world) = 0;
  /// Begins data[i] = sum over ranks of data[i], for `count` floats in place. The sum starts after
  /// the work that the rank's backend has queued so far, and overlaps with later work.
  virtual void begin(int rank, DevPtr data, std::int64_t count) = 0;
  /// Orders all work that the rank's backend queues from now on after all sums begun so far.
  virtual void finish(int rank) = 0;
  /// Aborts this rank's sums that still run. Call it before the memory of sums is freed, because
  /// freeing memory waits for the GPU, which may wait for ranks that never arrive.
  virtual void stop(int rank) noexcept = 0;
  /// Aborts sums in which GPUs wait for ranks that will not arrive. From then on, begin and finish
  /// throw ErrorKind::peer. Work queued after an aborted sum still runs, on data that are not the
  /// sum. Any thread may call this any number of times, even while another thread is inside
  /// connect, begin or finish. Returns soon.
  virtual void abort() noexcept = 0;
  /// Throws ErrorKind::peer, with the reason, if sums were aborted. If it does not throw, all
  /// results that the host received from the GPU before the call come from complete sums.
  virtual void require_whole() const = 0;
};

/// Reports on the GPUs without queuing work or waiting for other processes. Never throws.
PeerReadiness peer_readiness(std::span<Backend* const> backends) noexcept;
/// Creates the id of one set of PeerSums. One of the set's processes calls this. That process must
/// live until all are connected. Throws ErrorKind::device if the library fails.
std::string make_peer_id();
/// Creates the sums over the backends' GPUs. REQUIRES: peer_readiness reports that they can be
/// connected. Throws ErrorKind::device.
std::unique_ptr<PeerSums> make_peer_sums(std::span<Backend* const> backends);

}  // namespace dpt
