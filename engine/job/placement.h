// Placement of a Job: its devices, their shares of the work, and the ranks of this process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/config/train_spec.h"
#include "engine/data/loader.h"
#include "engine/graph/plan.h"
#include "engine/job/device_weights.h"
#include "engine/processes/process_group.h"
#include "kernels/devices.h"

namespace dpt {

struct Placement {
  std::vector<DeviceName> devices;    ///< devices of all processes, one per rank
  ProcessGroup* processes = nullptr;  ///< null if this process is the only one
  Range own_ranks;                    ///< ranks of this process
  DeviceWeights device_weights;       ///< one per rank
  BackendOptions backend_options;
  /// Maximum number of samples that a replica runs at once, by rank.
  std::vector<std::int64_t> max_micro_batches;
  std::int64_t max_micro_batch = 0;  ///< minimum of max_micro_batches

  // Fast mode on several GPUs or in several processes sums gradients of at least
  // `overlap_from_bytes` in buckets of `bucket_bytes`, overlapped with backward.
  std::int64_t overlap_from_bytes = 2 << 20;
  std::int64_t bucket_bytes = 25 << 20;
  /// Number of steps whose results may still be pending when the next step is queued. Equal on all
  /// ranks: 0 on the CPU, several if launching ahead keeps a GPU busy.
  std::int64_t steps_ahead = 0;
  std::shared_ptr<DecoderPool> decoders;  ///< decoder threads of this process

  int ranks() const { return static_cast<int>(devices.size()); }
  std::vector<DeviceName> own_devices() const {
    return {devices.begin() + own_ranks.begin, devices.begin() + own_ranks.end};
  }
  /// Returns the rank that represents this process.
  int first_rank() const { return static_cast<int>(own_ranks.begin); }
  /// Returns true if this process writes the run folder, the log and results.
  bool writes() const { return own_ranks.begin == 0; }
  /// Returns the devices' names in configs, by rank: "cpu", "cpu:4", "cuda:0".
  std::vector<std::string> device_names() const;
};

/// Makes the placement of a job with this many training samples. The devices are those of
/// `processes`, if not null. Throws ErrorKind::usage if there are more replicas than shards, or if
/// the weights do not fit the devices.
Placement make_placement(const TrainSpec& spec, const Plan& plan, std::int64_t train_samples,
                         ProcessGroup* processes);

/// Returns the number of decoder threads of a process for `data.workers: auto`: the cores that its
/// replicas leave free, but at least one per replica. A CPU replica keeps one core busy for each of
/// its threads. A GPU replica keeps one core busy with launching its work.
int auto_workers(int cores, const std::vector<DeviceName>& devices);

/// Returns the maximum number of samples to run at once. On a CPU, the activations stay in a core's
/// cache if at least 32 samples fit in it. On a GPU, they leave room for other uses of memory. The
/// result depends only on the plan and the kind of device, because exact mode's bits depend on it.
std::int64_t micro_batch_limit(const Plan& plan, const DeviceTraits& device);

}  // namespace dpt
