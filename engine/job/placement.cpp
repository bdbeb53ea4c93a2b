#include "engine/job/placement.h"

#include <algorithm>

#include "engine/config/replica_checks.h"
#include "engine/graph/memory_schedule.h"
#include "engine/processes/process_devices.h"
#include "kernels/base/error.h"
#include "kernels/base/user_cache.h"

namespace dpt {
namespace {

/// Gathers the devices of all processes, in process order. REQUIRES: the processes have exchanged
/// introductions.
void gather_devices(const ProcessGroup& processes, Placement& placement) {
  int rank = 0;
  for (const ProcessGroup::Member& member : processes.members()) {
    if (rank++ == processes.world().rank) {
      placement.own_ranks = {placement.ranks(),
                             placement.ranks() + static_cast<std::int64_t>(member.devices.size())};
    }
    placement.devices.insert(placement.devices.end(), member.devices.begin(), member.devices.end());
  }
}

}  // namespace

std::vector<std::string> Placement::device_names() const {
  return names_of(devices);
}

int auto_workers(int cores, const std::vector<DeviceName>& devices) {
  std::int64_t busy = 0;
  for (const DeviceName& device : devices) {
    busy += device.traits().speed_is_threads ? device.threads : 1;
  }
  const auto ranks = std::max<std::int64_t>(1, static_cast<std::int64_t>(devices.size()));
  return static_cast<int>(std::max(ranks, cores - busy));
}

std::int64_t micro_batch_limit(const Plan& plan, const DeviceTraits& device) {
  // Below 32 samples, reading the weights again and starting the calls costs more than the cache
  // saves (docs/internals/performance.md, Micro-batches). Every machine has kMaxBytes of memory.
  constexpr std::int64_t kEnough = 32, kMaxBytes = std::int64_t{512} << 20, kFewest = 8;
  // Do not count memory that micro-batches keep between the phases of a pass, because it leaves the
  // cache in any case.
  const std::int64_t per_sample =
      std::max<std::int64_t>(estimate_memory(plan, 1, 0, 0).activations, 1);
  const std::int64_t bytes = std::max(device.pass_bytes, std::min(kEnough * per_sample, kMaxBytes));
  return std::clamp(bytes / per_sample / kFewest * kFewest, kFewest, device.max_samples);
}

Placement make_placement(const TrainSpec& spec, const Plan& plan, std::int64_t train_samples,
                         ProcessGroup* processes) {
  Placement placement;
  placement.processes = processes;
  int cores = cpu_info().logical_allowed;
  if (processes) {
    gather_devices(*processes, placement);
    cores = own_part_of_cores(cores, processes->world());
  } else {
    placement.devices = resolve_devices(spec.devices, most_replicas(spec, train_samples));
    placement.own_ranks = {0, placement.ranks()};
  }
  const std::vector<std::string> names = placement.device_names();
  for (const std::string& problem :
       {problem_of_shards(spec, names.size()), problem_of_device_weights(spec, names)}) {
    if (!problem.empty()) throw Error(ErrorKind::usage, problem);
  }
  placement.device_weights = spec.device_weights.empty() ? default_device_weights(placement.devices)
                                                         : to_device_weights(spec.device_weights);
  const int workers = spec.data.workers > 0 ? static_cast<int>(spec.data.workers)
                                            : auto_workers(cores, placement.own_devices());
  placement.decoders = std::make_shared<DecoderPool>(workers);
  placement.backend_options.exact = spec.train.shards > 0;
  if (spec.train.autotune && !placement.backend_options.exact) {
    placement.backend_options.plan_cache = user_cache_path("cuda-plans.json");
  }
  for (const DeviceName& device : placement.devices) {
    placement.max_micro_batches.push_back(micro_batch_limit(plan, device.traits()));
    placement.steps_ahead = std::max(placement.steps_ahead, device.traits().steps_ahead);
  }
  placement.max_micro_batch =
      *std::min_element(placement.max_micro_batches.begin(), placement.max_micro_batches.end());
  if (processes && placement.devices.front().kind == DeviceName::Kind::cpu) {
    // Between processes, a network or the kernel's copies take a large part of a step
    // (docs/internals/performance.md, Processes). Overlap therefore pays off for small gradients
    // too. It needs buckets that complete early, but not more buckets than a slow network can
    // handle.
    constexpr std::int64_t kFrom = 256 << 10, kBucket = 1 << 20, kMaxBuckets = 16;
    const auto bytes = plan.grad_floats() * static_cast<std::int64_t>(sizeof(float));
    placement.overlap_from_bytes = kFrom;
    placement.bucket_bytes = std::max(kBucket, bytes / kMaxBuckets);
  }
  return placement;
}

}  // namespace dpt
