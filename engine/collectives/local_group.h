#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "engine/collectives/communicator.h"

namespace dpt {

/// Ranks as threads of this process. Construct it once; the thread of each rank then joins it with
/// its backend and gets a communicator. A world of one has no overhead. If the devices can use each
/// other's memory (CPU cores; one GPU, or GPUs with peer access), each rank sums a part in place
/// and copies it to all, and the host waits for no device. Otherwise, sums are computed in host
/// memory.
class LocalGroup : public RankGroup {
 public:
  explicit LocalGroup(int size, std::chrono::milliseconds stall_timeout = std::chrono::minutes(10));
  ~LocalGroup() override;
  std::unique_ptr<Communicator> join(int rank, Backend& backend) override;
  void abort(int rank, const std::string& cause) noexcept override;
  std::string abort_cause() const override;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace dpt
