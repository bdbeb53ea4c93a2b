// Division of work among devices of unequal speed: one integer weight per rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/collectives/shard_tree.h"
#include "kernels/devices.h"

namespace dpt {

/// Relative weights, one per rank in rank order, each from 1 to 2^20: with {9, 1}, rank 0 gets nine
/// tenths. They are integers, so that every rank computes the same partition.
using DeviceWeights = std::vector<std::int64_t>;

/// Divides `n` items into contiguous parts, one per rank in rank order, that cover each item once.
/// Each part is its exact proportion rounded down. The items left over go, one each, to the parts
/// with the largest remainders (on a tie, to the lower rank). Equal device weights therefore give
/// the same parts as even_part. A rank may get nothing. REQUIRES: n <= 2^40.
std::vector<Range> proportional_parts(std::int64_t n, const DeviceWeights& device_weights);

/// Converts a config's `device_weights`, all > 0. Keeps integers up to 2^20. Scales all other
/// weights so that the largest becomes 2^20.
DeviceWeights to_device_weights(std::span<const double> given);

/// Returns true if the devices include both CPUs and GPUs. Only `dpt bench` can show how their
/// speeds compare.
bool has_unlike_kinds(std::span<const DeviceName> devices);

/// Returns the weights to use if the config gives none: by the number of threads for CPUs, equal
/// otherwise.
DeviceWeights default_device_weights(std::span<const DeviceName> devices);

/// Returns device weights in proportion to the ranks' speeds, so that all ranks finish at the same
/// time. The weights are in ten-thousandths of the whole. Returns equal weights if a rank has no
/// measurement (0 or non-finite).
DeviceWeights device_weights_for_speed(std::span<const double> seconds_per_sample);

}  // namespace dpt
