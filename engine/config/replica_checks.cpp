#include "engine/config/replica_checks.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "kernels/base/text.h"

namespace dpt {

std::int64_t most_replicas(const TrainSpec& spec, std::int64_t samples) {
  const std::int64_t most = std::min(spec.data.batch_size, samples);
  return spec.train.shards > 0 ? std::min(most, spec.train.shards) : most;
}

std::string problem_of_shards(const TrainSpec& spec, std::size_t replicas) {
  const std::int64_t shards = spec.train.shards;
  if (shards == 0 || replicas <= static_cast<std::size_t>(shards)) return {};
  return fmt::format(
      "train.shards is {}, but {} replicas were requested: exact mode needs at least one shard per "
      "replica. Use fewer devices, or train.shards={}",
      shards, replicas, replicas);
}

std::string problem_of_device_weights(const TrainSpec& spec,
                                      const std::vector<std::string>& devices) {
  const std::vector<double>& weights = spec.device_weights;
  if (weights.empty() || weights.size() == devices.size()) return {};
  return fmt::format(
      "device_weights has {}, [{}], but there {} {}, [{}]: give one weight per device, or "
      "device_weights=auto",
      counted(weights.size(), "number"), fmt::join(weights, ", "),
      devices.size() == 1 ? "is" : "are", counted(devices.size(), "device"),
      fmt::join(devices, ", "));
}

}  // namespace dpt
