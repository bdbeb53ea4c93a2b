// The field `devices` of a config, in a job of several processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/processes/world.h"
#include "kernels/devices.h"

namespace dpt {

/// Returns the names of devices in configs: "cpu", "cpu:4", "cuda:0".
std::vector<std::string> names_of(const std::vector<DeviceName>& devices);

/// Returns true if the launcher has bound each process of this machine to separate cores.
bool has_own_cores(int allowed, const World& world);

/// Returns how many of the `allowed` cores are for this process alone: all if its launcher has
/// bound it to separate cores, otherwise its share.
int own_part_of_cores(int allowed, const World& world);

/// Does the same as resolve_devices, but for one of several processes: "auto" and "cuda" stand for
/// its share of the machine's devices (or for the one GPU that a launcher shows each task); other
/// lists apply to this process alone. Throws ErrorKind::device if there are fewer GPUs than
/// processes.
std::vector<DeviceName> devices_of_process(const std::vector<std::string>& asked,
                                           const World& world);

/// Returns a warning if the replicas of `devices` together compute with more threads than the
/// `cores` that they share; empty otherwise.
std::string why_cores_are_short(const std::vector<DeviceName>& devices, int cores);

}  // namespace dpt
