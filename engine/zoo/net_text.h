// Layers and blocks, as YAML in flow style, from which the families of the zoo build their
// networks.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace dpt::zoo {

using Layers = std::vector<std::string>;

/// Returns a layer. Without a name, its name is its index.
inline std::string layer(const std::string& type, const std::string& name = "",
                         const std::string& options = "") {
  return fmt::format("{{type: {}{}{}{}{}}}", type, name.empty() ? "" : ", name: ", name,
                     options.empty() ? "" : ", ", options);
}

/// Returns a batch norm with the network's `sync` option (sync_field).
inline std::string batch_norm(const std::string& name, bool sync, const std::string& options = "") {
  const char* between = sync && !options.empty() ? ", " : "";
  return layer("BatchNorm2d", name,
               fmt::format("{}{}{}", options, between, sync ? "sync: true" : ""));
}

inline std::string list_of(const Layers& layers) {
  return fmt::format("[{}]", fmt::join(layers, ", "));
}

inline std::string sequential(const std::string& name, const Layers& layers) {
  return layer("Sequential", name, "layers: " + list_of(layers));
}

inline void append(Layers& to, const Layers& more) {
  to.insert(to.end(), more.begin(), more.end());
}

inline std::string linear(const std::string& name, std::int64_t features,
                          const std::string& more = "") {
  return layer("Linear", name, fmt::format("out_features: {}{}", features, more));
}

struct Conv {
  std::int64_t channels = 0, kernel = 3, stride = 1, padding = 1;
  bool bias = true;
};
inline std::string conv(const std::string& name, const Conv& c, const std::string& more = "") {
  return layer(
      "Conv2d", name,
      fmt::format("out_channels: {}, kernel_size: {}, stride: {}, padding: {}{}{}", c.channels,
                  c.kernel, c.stride, c.padding, c.bias ? "" : ", bias: false", more));
}

/// Returns the option that initialises the weight like torch.nn.init.kaiming_normal_ with
/// mode="fan_out" in torchvision's networks. The standard deviation is sqrt(2 / (out_channels *
/// kernel * kernel)).
inline std::string fan_out_init(const Conv& c) {
  const double fan_out = static_cast<double>(c.channels * c.kernel * c.kernel);
  return fmt::format(", weight_init: normal, weight_init_std: {}", std::sqrt(2.0 / fan_out));
}
inline std::string fan_out_conv(const std::string& name, const Conv& c) {
  return conv(name, c, fan_out_init(c));
}

}  // namespace dpt::zoo
