// Checks of a config's settings against its number of replicas. That number is known when the
// config is read (a list of devices), or only when the devices are found (auto, cuda).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/train_spec.h"

namespace dpt {

/// Returns the number of replicas that `samples` training samples can keep busy. `auto` uses no
/// more replicas than that.
std::int64_t most_replicas(const TrainSpec& spec, std::int64_t samples);

/// Returns the problem of train.shards for this many replicas; empty if there is none.
std::string problem_of_shards(const TrainSpec& spec, std::size_t replicas);

/// Returns the problem of device_weights for these devices; empty if there is none.
std::string problem_of_device_weights(const TrainSpec& spec,
                                      const std::vector<std::string>& devices);

}  // namespace dpt
