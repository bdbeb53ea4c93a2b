// Which devices this process may use, and how their backends are made. The one place that names
// what was built in.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace dpt {

/// One entry of `devices:` after parsing.
struct DeviceName {
  enum class Kind : std::uint8_t { cpu, cuda } kind = Kind::cpu;
  int index = 0;    ///< CUDA ordinal
  int threads = 1;  ///< cpu:4 -> 4
  std::string text() const;
  bool operator==(const DeviceName&) const = default;
};

/// Parses "cpu", "cpu:4", "cuda:0". Throws ErrorKind::usage listing the forms.
DeviceName parse_device(const std::string& text);

/// What the CPU offers to this process.
struct CpuInfo {
  std::string model;
  std::string instruction_set;     ///< widest that oneDNN uses here
  int logical_allowed = 1;         ///< by affinity and cgroup quota
  int physical_allowed = 1;        ///< physical cores among them, quota respected; at least 1
  std::uint64_t memory_bytes = 0;  ///< usable, cgroup limit respected
};
CpuInfo cpu_info();

/// Why CUDA cannot be used ("built without CUDA"), or empty if it can.
std::string cuda_unavailable_reason();

/// Turns `devices:` into names: "auto" is one "cpu" per physical core that the process may use,
/// never more than `samples` (the largest batch); a missing device throws ErrorKind::device naming
/// what exists.
std::vector<DeviceName> resolve_devices(const std::vector<std::string>& asked,
                                        std::int64_t samples);

/// Makes the backend in the calling thread, which is the one that will use it.
std::unique_ptr<Backend> make_backend(const DeviceName& device);

/// "oneDNN 2.6.3, no CUDA": for --version and the log.
std::string backends_built_in();

}  // namespace dpt
