// Initial values. Each element is a pure function of the seed, the parameter's name and the
// element's index in the file's layout, so adding or reordering layers changes no other parameter.
#include "engine/graph/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/graph/layouts.h"
#include "engine/graph/name_stream.h"
#include "engine/layers/param_spec.h"
#include "kernels/base/philox.h"

namespace dpt {
namespace {

/// Random bits of one parameter, four elements per Philox block.
class Bits {
 public:
  Bits(std::uint64_t seed, const std::string& name) : seed_(seed), stream_(stream_of(name)) {}

  /// Returns a number in [0, 1).
  double uniform(std::int64_t index) const { return philox::uniform(word(index)); }

  /// Returns a standard normal number by Box-Muller. The words of elements 2k and 2k+1 give a pair
  /// of numbers, one for each of the two.
  double normal(std::int64_t index) const {
    const std::int64_t even = index - index % 2;
    // Use (0, 1], so that the logarithm is finite.
    const double u = (static_cast<double>(word(even) >> 8) + 1.0) * 0x1.0p-24;
    const double radius = std::sqrt(-2.0 * std::log(u));
    const double angle = 2.0 * std::numbers::pi * philox::uniform(word(even + 1));
    return radius * (index == even ? std::cos(angle) : std::sin(angle));
  }

 private:
  std::uint32_t word(std::int64_t index) const {
    const auto i = static_cast<std::uint64_t>(index);
    return philox::block(seed_, philox::Use::init, stream_, i / 4).v[i % 4];
  }

  std::uint64_t seed_, stream_;
};

void fill(const Param& param, std::uint64_t seed, float* file) {
  const InitSpec& init = param.spec.init;
  const auto fan_in = static_cast<double>(param.spec.fan_in);
  const auto fan_out = static_cast<double>(param.spec.fan_out);
  const Bits bits(seed, param.name);
  const auto uniform = [&](double bound) {
    for (std::int64_t i = 0; i < param.count; ++i) {
      file[i] = static_cast<float>((2.0 * bits.uniform(i) - 1.0) * bound);
    }
  };
  const auto normal = [&](double mean, double stddev) {
    for (std::int64_t i = 0; i < param.count; ++i) {
      file[i] = static_cast<float>(mean + stddev * bits.normal(i));
    }
  };
  // The bounds are those of torch.nn.init; kaiming_* uses the gain of ReLU, sqrt(2).
  switch (init.kind) {
    case InitKind::pytorch:
      return uniform(1.0 / std::sqrt(fan_in));
    case InitKind::xavier_uniform:
      return uniform(std::sqrt(6.0 / (fan_in + fan_out)));
    case InitKind::xavier_normal:
      return normal(0.0, std::sqrt(2.0 / (fan_in + fan_out)));
    case InitKind::kaiming_uniform:
      return uniform(std::sqrt(6.0 / fan_in));
    case InitKind::kaiming_normal:
      return normal(0.0, std::sqrt(2.0 / fan_in));
    case InitKind::normal:
      return normal(init.value, init.stddev);
    case InitKind::constant:
      std::fill_n(file, param.count, static_cast<float>(init.value));
  }
}

}  // namespace

void initialise_params(const Plan& plan, std::uint64_t seed, float* flat) {
  std::fill_n(flat, plan.param_floats, 0.0F);
  std::vector<float> file;
  for (const Param& param : plan.params) {
    file.resize(static_cast<std::size_t>(param.count));
    fill(param, seed, file.data());
    from_file_layout(param, file.data(), flat + param.offset);
  }
}

}  // namespace dpt
