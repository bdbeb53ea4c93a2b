// `devices:` of a config where a job has several processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/processes/world.h"
#include "kernels/devices.h"

namespace dpt {

/// Returns the names that a config uses: "cpu", "cpu:4", "cuda:0".
std::vector<std::string> names_of(const std::vector<DeviceName>& devices);

/// Returns true if the launcher has bound each process of this machine to cores of its own.
bool has_own_cores(int allowed, const World& world);

/// The cores, of `allowed`, that this process has to itself: all that its launcher has bound it to,
/// or else its part of the machine's.
int own_part_of_cores(int allowed, const World& world);

/// Does what resolve_devices does, for one of several processes: "auto" and "cuda" stand for its
/// part of the machine's devices (or for the one GPU that a launcher shows each task); other lists
/// are its own. Throws ErrorKind::device if there are fewer GPUs than processes.
std::vector<DeviceName> devices_of_process(const std::vector<std::string>& asked,
                                           const World& world);

/// Returns one sentence if the replicas of `devices` together compute with more threads than the
/// `cores` that they share; empty otherwise.
std::string why_cores_are_short(const std::vector<DeviceName>& devices, int cores);

}  // namespace dpt
