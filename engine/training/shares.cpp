#include "engine/training/shares.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

namespace dpt {
namespace {

constexpr std::int64_t kLargestShare = std::int64_t{1} << 20;

}  // namespace

std::vector<Range> share_parts(std::int64_t n, const Shares& shares) {
  assert(n >= 0 && !shares.empty());
  const std::int64_t whole = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  std::vector<std::int64_t> sizes, remainders;
  std::int64_t left = n;
  for (const std::int64_t share : shares) {
    assert(share >= 1 && share <= kLargestShare);
    sizes.push_back(n * share / whole);
    remainders.push_back(n * share % whole);
    left -= sizes.back();
  }
  std::vector<std::size_t> ranks(shares.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  // The remainders sum to left * whole and each is below `whole`: fewer are left over than ranks.
  for (std::int64_t i = 0; i < left; ++i) ++sizes[ranks[static_cast<std::size_t>(i)]];

  std::vector<Range> parts;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    parts.push_back({begin, begin + size});
    begin += size;
  }
  return parts;
}

Shares to_shares(std::span<const double> given) {
  const bool whole = std::all_of(given.begin(), given.end(), [](double share) {
    return share == std::floor(share) && share <= static_cast<double>(kLargestShare);
  });
  const double largest = *std::max_element(given.begin(), given.end());
  const double factor = whole ? 1.0 : static_cast<double>(kLargestShare) / largest;
  Shares shares;
  for (const double share : given) {
    shares.push_back(std::max<std::int64_t>(1, std::llround(share * factor)));
  }
  return shares;
}

bool has_unlike_kinds(std::span<const DeviceName> devices) {
  return std::any_of(devices.begin(), devices.end(),
                     [&](const DeviceName& device) { return device.kind != devices.front().kind; });
}

Shares default_shares(std::span<const DeviceName> devices) {
  const bool by_threads =
      !has_unlike_kinds(devices) && devices.front().kind == DeviceName::Kind::cpu;
  Shares shares;
  for (const DeviceName& device : devices) shares.push_back(by_threads ? device.threads : 1);
  return shares;
}

Shares shares_for_speed(std::span<const double> seconds_per_sample) {
  constexpr double kParts = 10'000;
  double whole = 0;
  for (const double seconds : seconds_per_sample) {
    if (!(seconds > 0) || !std::isfinite(seconds)) return Shares(seconds_per_sample.size(), 1);
    whole += 1 / seconds;
  }
  Shares shares;
  for (const double seconds : seconds_per_sample) {
    shares.push_back(std::max<std::int64_t>(1, std::llround(kParts / seconds / whole)));
  }
  return shares;
}

}  // namespace dpt
