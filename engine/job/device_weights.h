// Division of work among devices of unequal speed: one integer weight per rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/collectives/shard_tree.h"
#include "kernels/devices.h"

namespace dpt {

/// Relative weights, one per rank in rank order, each from 1 to 2^20: {9, 1} gives rank 0 nine
/// tenths. Integers, so that every rank computes the same partition.
using DeviceWeights = std::vector<std::int64_t>;

/// Divides `n` items into contiguous parts, one per rank in rank order, that cover everything once.
/// Each part is its exact proportion rounded down; the remaining items go, one each, to the largest
/// remainders, on a tie to the lower rank. So equal device weights give even_part, and a rank may
/// get nothing. n <= 2^40.
std::vector<Range> proportional_parts(std::int64_t n, const DeviceWeights& device_weights);

/// A config's `device_weights`, all > 0. Integers up to 2^20 are kept; others are scaled so that
/// the largest becomes 2^20.
DeviceWeights to_device_weights(std::span<const double> given);

/// Returns true if some of the devices are CPUs and some are not: only `dpt bench` shows how they
/// compare.
bool has_unlike_kinds(std::span<const DeviceName> devices);

/// The weights where none are given: threads for CPUs, equal otherwise.
DeviceWeights default_device_weights(std::span<const DeviceName> devices);

/// In proportion to the ranks' speeds, in ten-thousandths of the whole: the device weights with
/// which all ranks would finish at the same time. Equal where a rank has no measurement (0 or not
/// finite).
DeviceWeights device_weights_for_speed(std::span<const double> seconds_per_sample);

}  // namespace dpt
