#include "kernels/base/device_name.h"

#include <fmt/format.h>
#include <charconv>

namespace dpt {
namespace {

/// Returns the value of a text that is a number without a sign or leading zeros. Returns -1 for any
/// other text.
int to_number(const std::string& text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  const bool is_plain = text[0] != '-' && (text.size() == 1 || text[0] != '0');
  return is_whole && is_plain ? value : -1;
}

}  // namespace

const DeviceTraits& DeviceName::traits() const {
  // A pass of 1 MiB fills half of the second-level cache of a current server core, or all of that
  // of an older one. A GPU is faster with more samples at once. There, 2 GiB leave room for
  // everything else on any GPU that has enough memory for so large a network.
  static constexpr DeviceTraits kCpu{.noun = "CPU",
                                     .speed_is_threads = true,
                                     .arithmetic_varies = true,
                                     .overlaps_sums = false,
                                     .pass_bytes = std::int64_t{1} << 20,
                                     .max_samples = 256,
                                     .steps_ahead = 0};
  static constexpr DeviceTraits kGpu{.noun = "GPU",
                                     .speed_is_threads = false,
                                     .arithmetic_varies = false,
                                     .overlaps_sums = true,
                                     .pass_bytes = std::int64_t{1} << 31,
                                     .max_samples = 16384,
                                     .steps_ahead = 6};
  return kind == Kind::cuda ? kGpu : kCpu;
}

std::string DeviceName::text() const {
  if (kind == Kind::cuda) return fmt::format("cuda:{}", index);
  return threads == 1 ? "cpu" : fmt::format("cpu:{}", threads);
}

std::optional<DeviceName> read_device_name(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const bool has_number = colon != std::string::npos;
  const int number = has_number ? to_number(text.substr(colon + 1)) : -1;
  if (kind == "cpu" && !has_number) return DeviceName{};
  if (kind == "cpu" && number >= 1 && number <= DeviceName::kMaxThreads)
    return DeviceName{.threads = number};
  if (kind == "cuda" && number >= 0 && number <= DeviceName::kMaxIndex) {
    return DeviceName{.kind = DeviceName::Kind::cuda, .index = number};
  }
  return std::nullopt;
}

}  // namespace dpt
