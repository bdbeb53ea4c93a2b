// Names of devices, and what is known of a kind of device before one is opened.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dpt {

/// Properties of a kind of device, for planning its work before it is opened.
struct DeviceTraits {
  const char* noun;          ///< for messages: "CPU", "GPU"
  bool speed_is_threads;     ///< two of them compare by the threads they are given
  bool arithmetic_varies;    ///< bf16 and tf32: not each of them has it, so it must be asked
  bool bf16_is_slow;         ///< slower than fp32, for lack of our own kernels
  bool overlaps_sums;        ///< sums over devices may run concurrently with backward
  std::int64_t pass_bytes;   ///< activations of a micro-batch with which it runs well
  std::int64_t max_samples;  ///< maximum number of samples of a micro-batch
  std::int64_t steps_ahead;  ///< steps that it gains from having queued
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

/// Reads "cpu", "cpu:4" or "cuda:0"; nothing for any other text.
std::optional<DeviceName> read_device_name(const std::string& text);

}  // namespace dpt
