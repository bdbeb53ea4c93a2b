#include "engine/job/device_weights.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

namespace dpt {
namespace {

constexpr std::int64_t kLargestWeight = std::int64_t{1} << 20;

}  // namespace

std::vector<Range> proportional_parts(std::int64_t n, const DeviceWeights& device_weights) {
  assert(n >= 0 && !device_weights.empty());
  const std::int64_t whole =
      std::accumulate(device_weights.begin(), device_weights.end(), std::int64_t{0});
  std::vector<std::int64_t> sizes, remainders;
  std::int64_t left = n;
  for (const std::int64_t weight : device_weights) {
    assert(weight >= 1 && weight <= kLargestWeight);
    sizes.push_back(n * weight / whole);
    remainders.push_back(n * weight % whole);
    left -= sizes.back();
  }
  std::vector<std::size_t> ranks(device_weights.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  // The remainders sum to left * whole, and each is below `whole`, so `left` is less than the
  // number of ranks.
  for (std::int64_t i = 0; i < left; ++i) ++sizes[ranks[i]];

  std::vector<Range> parts;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    parts.push_back({begin, begin + size});
    begin += size;
  }
  return parts;
}

DeviceWeights to_device_weights(std::span<const double> given) {
  const bool whole = std::all_of(given.begin(), given.end(), [](double weight) {
    return weight == std::floor(weight) && weight <= static_cast<double>(kLargestWeight);
  });
  const double largest = *std::max_element(given.begin(), given.end());
  const double factor = whole ? 1.0 : static_cast<double>(kLargestWeight) / largest;
  DeviceWeights device_weights;
  for (const double weight : given) {
    device_weights.push_back(std::max<std::int64_t>(1, std::llround(weight * factor)));
  }
  return device_weights;
}

bool has_unlike_kinds(std::span<const DeviceName> devices) {
  return std::any_of(devices.begin(), devices.end(),
                     [&](const DeviceName& device) { return device.kind != devices.front().kind; });
}

DeviceWeights default_device_weights(std::span<const DeviceName> devices) {
  const bool by_threads = !has_unlike_kinds(devices) && devices.front().traits().speed_is_threads;
  DeviceWeights device_weights;
  for (const DeviceName& device : devices)
    device_weights.push_back(by_threads ? device.threads : 1);
  return device_weights;
}

DeviceWeights device_weights_for_speed(std::span<const double> seconds_per_sample) {
  constexpr double kParts = 10'000;
  double whole = 0;
  for (const double seconds : seconds_per_sample) {
    if (!(seconds > 0) || !std::isfinite(seconds))
      return DeviceWeights(seconds_per_sample.size(), 1);
    whole += 1 / seconds;
  }
  DeviceWeights device_weights;
  for (const double seconds : seconds_per_sample) {
    device_weights.push_back(std::max<std::int64_t>(1, std::llround(kParts / seconds / whole)));
  }
  return device_weights;
}

}  // namespace dpt
