// How the work is shared out among devices of unequal speed: one whole-number weight per rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/collectives/shard_tree.h"
#include "kernels/devices.h"

namespace dpt {

/// Relative weights, one per rank in rank order, each from 1 to 2^20: {9, 1} gives rank 0 nine
/// tenths. Whole numbers, so that every rank cuts alike.
using DeviceWeights = std::vector<std::int64_t>;

/// Cuts `n` things into contiguous parts, one per rank in rank order, that cover everything once.
/// Each part is its exact proportion rounded down; what is left over goes, one each, to the largest
/// remainders, and of equal ones to the lower rank. So equal device weights give even_part, and a
/// rank may get nothing. n <= 2^40.
std::vector<Range> proportional_parts(std::int64_t n, const DeviceWeights& device_weights);

/// A config's `device_weights`, all > 0. Whole numbers up to 2^20 stay what they are; others are
/// scaled so that the largest becomes 2^20.
DeviceWeights to_device_weights(std::span<const double> given);

/// Some of the devices are CPUs and some are not: nothing but a measurement tells how they compare.
bool has_unlike_kinds(std::span<const DeviceName> devices);

/// Where nothing is given or measured: threads for CPUs, equal otherwise.
DeviceWeights default_device_weights(std::span<const DeviceName> devices);

/// In proportion to the ranks' speeds, in ten-thousandths of the whole: the device weights with
/// which all ranks would finish at the same time. Equal where a rank has no measurement (0 or not
/// finite).
DeviceWeights device_weights_for_speed(std::span<const double> seconds_per_sample);

}  // namespace dpt
