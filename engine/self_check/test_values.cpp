#include "engine/self_check/test_values.h"

#include <algorithm>
#include <variant>

namespace dpt {
namespace {

/// Approximate number of multiply-adds that the reference computes in each direction.
constexpr std::int64_t kProducts = 4'000'000;

template <class Desc>
ProductCosts costs(const Desc&) {
  return {};
}
ProductCosts costs(const Conv2dDesc& d) {
  const std::int64_t taps = d.kernel.h * d.kernel.w;
  return {d.in.c, d.out.c, taps * (d.conv_out.c / d.groups), 2 * taps * (d.in.c / d.groups)};
}
ProductCosts costs(const ConvTranspose2dDesc& d) {
  const std::int64_t taps = d.kernel.h * d.kernel.w;
  return {d.in.c, d.out.c, taps * (d.out.c / d.groups), 2 * taps * (d.in.c / d.groups)};
}
ProductCosts costs(const LinearDesc& d) {
  return {d.in, d.out, d.out, 2 * d.in};
}

}  // namespace

ProductCosts costs_of(const OpDesc& desc) {
  return std::visit([](const auto& each) { return costs(each); }, desc);
}

reference::Values values_for(TestValues& source, std::size_t count, std::int64_t channels,
                             std::int64_t products) {
  if (products == 0) return source.dense(count);
  // Let every channel have values, unless that costs more than four times as much.
  const std::int64_t given = std::max<std::int64_t>(
      1, std::max(kProducts / products, std::min(2 * channels, 4 * kProducts / products)));
  if (2 * given > static_cast<std::int64_t>(count)) return source.dense(count);
  return source.sparse(count, channels, given);
}

}  // namespace dpt
