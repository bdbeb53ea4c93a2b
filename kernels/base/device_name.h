// Names of devices, and properties of each kind of device that are known before one is opened.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dpt {

/// Properties of a kind of device, used to plan its work before one is opened.
struct DeviceTraits {
  const char* noun;          ///< for messages: "CPU", "GPU"
  bool speed_is_threads;     ///< true if speed is proportional to the number of threads
  bool arithmetic_varies;    ///< true if bf16 and tf32 support must be queried per device
  bool overlaps_sums;        ///< true if sums over devices may run concurrently with backward
  std::int64_t pass_bytes;   ///< bytes of activations of an efficient micro-batch
  std::int64_t max_samples;  ///< maximum number of samples of a micro-batch
  std::int64_t steps_ahead;  ///< number of steps to queue ahead
};

/// One entry of `devices:` after parsing.
struct DeviceName {
  enum class Kind : std::uint8_t { cpu, cuda } kind = Kind::cpu;
  static constexpr int kMaxThreads = 1024, kMaxIndex = 1023;
  int index = 0;    ///< CUDA ordinal
  int threads = 1;  ///< cpu:4 -> 4
  std::string text() const;
  const DeviceTraits& traits() const;
  bool operator==(const DeviceName&) const = default;
};

/// Parses "cpu", "cpu:4" or "cuda:0". Returns nothing for any other text.
std::optional<DeviceName> read_device_name(const std::string& text);

}  // namespace dpt
