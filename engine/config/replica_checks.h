// What a config says about its replicas must fit their number, which is known when the config is
// read (a list of devices) or when the devices are found (auto, cuda).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/train_spec.h"

namespace dpt {

/// How many replicas have something to do with that many training samples: `auto` takes no more.
std::int64_t most_replicas(const TrainSpec& spec, std::int64_t samples);

/// What is wrong with train.shards for that many replicas; empty where nothing is.
std::string problem_of_shards(const TrainSpec& spec, std::size_t replicas);

/// What is wrong with device_weights for these devices; empty where nothing is.
std::string problem_of_device_weights(const TrainSpec& spec,
                                      const std::vector<std::string>& devices);

}  // namespace dpt
