// Sums over several GPUs of one process by the vendor's library (NCCL), overlapped with the
// computation. For large gradients in fast mode: the order of the additions is the library's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/backend.h"

namespace dpt {

/// One object for all ranks. Rank r's functions are called by its own thread, all ranks begin the
/// same sums in the same order.
class PeerSums {
 public:
  virtual ~PeerSums() = default;
  /// data[i] = sum over ranks of data[i], for `count` floats in place: starts when what rank's
  /// backend has queued so far has run, overlapped with what it queues next.
  virtual void begin(int rank, DevPtr data, std::int64_t count) = 0;
  /// What rank's backend queues from now on runs after all sums begun.
  virtual void finish(int rank) = 0;
  /// Aborts sums in which GPUs wait for ranks that will not arrive; begin and finish throw
  /// ErrorKind::peer from then on. Any thread, any number of times, also while another is inside
  /// begin or finish; returns soon.
  virtual void abort() noexcept = 0;
};

/// Null, and `why_not` says why, unless the backends are different GPUs and the library is
/// available. Called by one thread, while the others wait. Throws ErrorKind::device when the
/// library fails.
std::unique_ptr<PeerSums> make_peer_sums(std::span<Backend* const> backends, std::string& why_not);

}  // namespace dpt
