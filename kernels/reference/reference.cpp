#include "kernels/reference/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <utility>

#include "kernels/base/philox.h"
#include "kernels/common/conv_transpose.h"

namespace dpt::reference {

namespace {

/// Calls use(x_at, y_at, tap) for every pixel of a convolution's output and every tap of the kernel
/// that falls on the image. x_at and y_at are the indices of the two pixels' first channels, and
/// tap is the tap's number.
template <class Use>
void for_conv_taps(const Conv2dDesc& d, const Use& use) {
  for (std::int64_t n = 0; n < d.batch; ++n) {
    for (std::int64_t oh = 0; oh < d.conv_out.h; ++oh) {
      for (std::int64_t ow = 0; ow < d.conv_out.w; ++ow) {
        for (std::int64_t kh = 0; kh < d.kernel.h; ++kh) {
          for (std::int64_t kw = 0; kw < d.kernel.w; ++kw) {
            const std::int64_t ih = oh * d.stride.h - d.padding.h + kh * d.dilation.h;
            const std::int64_t iw = ow * d.stride.w - d.padding.w + kw * d.dilation.w;
            if (ih < 0 || iw < 0 || ih >= d.in.h || iw >= d.in.w) continue;
            use(((n * d.in.h + ih) * d.in.w + iw) * d.in.c,
                ((n * d.conv_out.h + oh) * d.conv_out.w + ow) * d.conv_out.c, kh * d.kernel.w + kw);
          }
        }
      }
    }
  }
}

/// Calls use(index, channel) for every element of an image.
template <class Use>
void for_channels(const Values& image, std::size_t channels, const Use& use) {
  for (std::size_t i = 0; i < image.size(); i += channels) {
    for (std::size_t c = 0; c < channels; ++c) use(i + c, c);
  }
}

/// Adds an image's values to the sums of their channels.
void add_to_channels(const Values& image, Values& sums) {
  for_channels(image, sums.size(), [&](std::size_t i, std::size_t c) { sums[c] += image[i]; });
}
void add_bias(const Values& bias, Values& image) {
  for_channels(image, bias.size(), [&](std::size_t i, std::size_t c) { image[i] += bias[c]; });
}

/// Adds `factor` times `values` to `to`, for `count` elements.
void add_scaled(double* to, double factor, const double* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += factor * values[i];
}

bool are_finite(const Values& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

/// The values of an image that a sum of products cannot skip, pixel after pixel.
class Factors {
 public:
  struct Factor {
    std::int64_t channel;
    double value;
  };

  /// Skips zeros if `skips`. Zeros add nothing, unless the other factor is non-finite.
  Factors(const Values& image, std::int64_t channels, bool skips) : channels_(channels) {
    const std::size_t pixels = image.size() / static_cast<std::size_t>(channels);
    begins_.reserve(pixels + 1);
    const double* value = image.data();
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
      begins_.push_back(factors_.size());
      for (std::int64_t c = 0; c < channels; ++c, ++value) {
        if (*value != 0 || !skips) factors_.push_back({c, *value});
      }
    }
    begins_.push_back(factors_.size());
  }
  /// Returns the factors of the pixel whose first channel is element `at` of the image.
  std::span<const Factor> of_pixel(std::int64_t at) const {
    const auto pixel = static_cast<std::size_t>(at / channels_);
    return std::span(factors_).subspan(begins_[pixel], begins_[pixel + 1] - begins_[pixel]);
  }

 private:
  std::int64_t channels_;
  std::vector<Factor> factors_;
  std::vector<std::size_t> begins_;
};

/// The three sums of products of a convolution. They skip products with zero, so that inputs with
/// few other values cost little.
class ConvSums {
 public:
  explicit ConvSums(const Conv2dDesc& d)
      : d_(d),
        taps_(d.kernel.h * d.kernel.w),
        in_(d.in.c / d.groups),
        out_(d.conv_out.c / d.groups) {}

  /// Adds the convolution of x to y.
  void add_to_y(const Values& x, const Values& weight, Values& y) const {
    const Factors factors(x, d_.in.c, are_finite(weight));
    const Values inputs_first = with_inputs_first(weight);
    for_conv_taps(d_, [&](std::int64_t x_at, std::int64_t y_at, std::int64_t tap) {
      for (const auto& [c, value] : factors.of_pixel(x_at)) {
        add_scaled(&y[at(y_at + c / in_ * out_)], value,
                   &inputs_first[at((tap * d_.in.c + c) * out_)], out_);
      }
    });
  }
  /// Adds the gradient of x to dx.
  void add_to_x(const Values& dy, const Values& weight, Values& dx) const {
    const Factors factors(dy, d_.conv_out.c, are_finite(weight));
    for_conv_taps(d_, [&](std::int64_t x_at, std::int64_t y_at, std::int64_t tap) {
      for (const auto& [o, value] : factors.of_pixel(y_at)) {
        add_scaled(&dx[at(x_at + o / out_ * in_)], value, &weight[at((o * taps_ + tap) * in_)],
                   in_);
      }
    });
  }
  /// Adds the gradient of the weight to dweight.
  void add_to_weight(const Values& x, const Values& dy, Values& dweight) const {
    const Factors factors(dy, d_.conv_out.c, are_finite(x));
    for_conv_taps(d_, [&](std::int64_t x_at, std::int64_t y_at, std::int64_t tap) {
      for (const auto& [o, value] : factors.of_pixel(y_at)) {
        add_scaled(&dweight[at((o * taps_ + tap) * in_)], value, &x[at(x_at + o / out_ * in_)],
                   in_);
      }
    });
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  /// Returns the weight as (taps, in, out / groups).
  Values with_inputs_first(const Values& weight) const {
    Values result(weight.size());
    for (std::int64_t o = 0; o < d_.conv_out.c; ++o) {
      for (std::int64_t tap = 0; tap < taps_; ++tap) {
        for (std::int64_t i = 0; i < in_; ++i) {
          const std::int64_t c = o / out_ * in_ + i;
          result[at((tap * d_.in.c + c) * out_ + o % out_)] =
              weight[at((o * taps_ + tap) * in_ + i)];
        }
      }
    }
    return result;
  }

  const Conv2dDesc& d_;
  std::int64_t taps_, in_, out_;  ///< in_ and out_: channels of one group
};

/// Calls window(y_index, inputs, divisor) for every output of a pool. `inputs` are the indices of
/// the window's elements that lie inside the input, in row-major order.
template <class Window>
void for_windows(const Pool2dDesc& d, const Window& window) {
  std::vector<std::size_t> inputs;
  for (std::int64_t n = 0; n < d.batch; ++n) {
    for (std::int64_t oh = 0; oh < d.out.h; ++oh) {
      for (std::int64_t ow = 0; ow < d.out.w; ++ow) {
        for (std::int64_t c = 0; c < d.in.c; ++c) {
          inputs.clear();
          std::int64_t padded = 0;
          if (d.adaptive) {
            // The window goes from floor(o * in / out) to ceil((o + 1) * in / out).
            const std::int64_t last_h = ((oh + 1) * d.in.h + d.out.h - 1) / d.out.h;
            const std::int64_t last_w = ((ow + 1) * d.in.w + d.out.w - 1) / d.out.w;
            for (std::int64_t ih = oh * d.in.h / d.out.h; ih < last_h; ++ih) {
              for (std::int64_t iw = ow * d.in.w / d.out.w; iw < last_w; ++iw) {
                inputs.push_back(
                    static_cast<std::size_t>(((n * d.in.h + ih) * d.in.w + iw) * d.in.c + c));
              }
            }
            window(static_cast<std::size_t>(((n * d.out.h + oh) * d.out.w + ow) * d.out.c + c),
                   inputs, static_cast<double>(inputs.size()));
            continue;
          }
          for (std::int64_t kh = 0; kh < d.kernel.h; ++kh) {
            for (std::int64_t kw = 0; kw < d.kernel.w; ++kw) {
              const std::int64_t ih = oh * d.stride.h - d.padding.h + kh * d.dilation.h;
              const std::int64_t iw = ow * d.stride.w - d.padding.w + kw * d.dilation.w;
              // Elements beyond the padded input are ceil_mode's overhang. They never count.
              if (ih < d.in.h + d.padding.h && iw < d.in.w + d.padding.w) ++padded;
              if (ih < 0 || iw < 0 || ih >= d.in.h || iw >= d.in.w) continue;
              inputs.push_back(
                  static_cast<std::size_t>(((n * d.in.h + ih) * d.in.w + iw) * d.in.c + c));
            }
          }
          double divisor = static_cast<double>(
              d.count_include_pad ? padded : static_cast<std::int64_t>(inputs.size()));
          if (d.divisor_override != 0) divisor = static_cast<double>(d.divisor_override);
          window(static_cast<std::size_t>(((n * d.out.h + oh) * d.out.w + ow) * d.out.c + c),
                 inputs, divisor);
        }
      }
    }
  }
}

/// Returns the element that wins a max-pooling window: the last NaN if there is one, otherwise the
/// first of the largest elements.
std::size_t winner(const Values& x, const std::vector<std::size_t>& inputs) {
  std::size_t best = inputs.front();
  for (const std::size_t i : inputs) {
    if (x[i] > x[best] || std::isnan(x[i])) best = i;
  }
  return best;
}

}  // namespace

Conv2dDesc as_convolution(const LinearDesc& d) {
  Conv2dDesc conv;
  conv.batch = d.batch;
  conv.in.c = d.in;
  conv.conv_out.c = conv.out.c = d.out;
  conv.bias = d.bias;
  conv.relu = d.relu;
  return conv;
}

Values conv(const Conv2dDesc& d, const Values& x, const Values& weight, const Values& bias) {
  Values y(static_cast<std::size_t>(d.batch * d.conv_out.elements()), 0.0);
  ConvSums(d).add_to_y(x, weight, y);
  if (!bias.empty()) add_bias(bias, y);
  return y;
}

Values relu(Values x) {
  for (double& v : x) v = v <= 0 ? 0 : v;
  return x;
}

Values relu_backward(Values dy, const Values& y) {
  for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = y[i] <= 0 ? 0 : dy[i];
  return dy;
}

namespace {

/// Values of y and dy/dx at x.
struct Point {
  double value, slope;
};

/// Formulas of the activations in double precision, written independently of
/// kernels/common/activations.h.
struct ActivationAt {
  double x;

  double logistic() const { return 1 / (1 + std::exp(-x)); }
  template <bool kY>
  Point operator()(const activations::LeakyRelu<kY>& f) const {
    const double slope = x > 0 ? 1.0 : static_cast<double>(f.slope);
    return {x * slope, slope};
  }
  Point operator()(const activations::Relu6&) const {
    return {std::clamp(x, 0.0, 6.0), x > 0 && x < 6 ? 1.0 : 0.0};
  }
  Point operator()(const activations::Gelu&) const {
    const double cumulative = std::erfc(-x / std::sqrt(2.0)) / 2;
    return {x * cumulative,
            cumulative + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi)};
  }
  Point operator()(const activations::GeluTanh&) const {
    const double k = std::sqrt(2 / std::numbers::pi);
    const double t = std::tanh(k * (x + 0.044715 * std::pow(x, 3)));
    return {x * (1 + t) / 2, (1 + t) / 2 + x * (1 - t * t) / 2 * k * (1 + 3 * 0.044715 * x * x)};
  }
  Point operator()(const activations::Silu&) const {
    const double s = logistic();
    return {x * s, s + x * s * (1 - s)};
  }
  Point operator()(const activations::Sigmoid&) const {
    const double s = logistic();
    return {s, s * (1 - s)};
  }
  Point operator()(const activations::Tanh&) const {
    return {std::tanh(x), 1 / std::pow(std::cosh(x), 2)};
  }
  Point operator()(const activations::Softplus& f) const {
    const double beta = static_cast<double>(f.beta), z = beta * x;
    if (z > static_cast<double>(f.threshold)) return {x, 1};
    return {std::log1p(std::exp(z)) / beta, 1 / (1 + std::exp(-z))};
  }
  Point operator()(const activations::Hardswish&) const {
    if (x <= -3) return {0, 0};
    return x >= 3 ? Point{x, 1} : Point{x * (x + 3) / 6, x / 3 + 0.5};
  }
  Point operator()(const activations::Hardsigmoid&) const {
    return {std::clamp(x / 6 + 0.5, 0.0, 1.0), x > -3 && x < 3 ? 1.0 / 6 : 0.0};
  }
};

Point activation_at(const ActivationDesc& d, double x) {
  return std::visit(ActivationAt{x}, d.formula);
}

}  // namespace

Values activation(const ActivationDesc& d, const Values& x) {
  Values y;
  for (const double v : x) y.push_back(activation_at(d, v).value);
  return y;
}

Values activation_backward(const ActivationDesc& d, const Values& x, const Values& dy) {
  Values dx;
  for (std::size_t i = 0; i < x.size(); ++i) dx.push_back(dy[i] * activation_at(d, x[i]).slope);
  return dx;
}

Values dropout_factors(const DropoutDesc& d, const std::vector<std::int64_t>& ids,
                       std::int64_t step) {
  using philox::Use;
  const philox::Block key = philox::block(d.seed, Use::dropout, d.stream, 0);
  const std::uint64_t layer = key.v[0] + (static_cast<std::uint64_t>(key.v[1]) << 32);
  Values factors;
  for (const std::int64_t id : ids) {
    for (std::int64_t i = 0; i < d.shape.elements(); ++i) {
      if (!d.training) {
        factors.push_back(1);
        continue;
      }
      const auto unit = static_cast<std::uint64_t>(d.channels ? i % d.shape.c : i);
      const philox::Block bits = philox::block(layer, Use::dropout, static_cast<std::uint64_t>(id),
                                               (static_cast<std::uint64_t>(step) << 32) + unit / 4);
      const double drawn = std::ldexp(static_cast<double>(bits.v[unit % 4] >> 8), -24);
      factors.push_back(drawn < static_cast<double>(static_cast<float>(d.p)) ? 0 : 1 / (1 - d.p));
    }
  }
  return factors;
}

Values product(const Values& a, const Values& b) {
  Values result;
  for (std::size_t i = 0; i < a.size(); ++i) result.push_back(a[i] * b[i]);
  return result;
}

Values sum(const SumDesc& d, const Values& x) {
  Values y(x.size() / static_cast<std::size_t>(d.inputs), 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) y[i % y.size()] += x[i];
  return d.relu ? relu(y) : y;
}

Values sum_backward(const SumDesc& d, const Values& x, Values dy) {
  if (d.relu) dy = relu_backward(std::move(dy), sum(d, x));
  Values dx;
  for (int k = 0; k < d.inputs; ++k) dx.insert(dx.end(), dy.begin(), dy.end());
  return dx;
}

Values pool(const Pool2dDesc& d, const Values& x) {
  Values y(static_cast<std::size_t>(d.batch * d.out.elements()), 0.0);
  for_windows(d, [&](std::size_t at, const std::vector<std::size_t>& inputs, double divisor) {
    if (d.kind == PoolKind::max) {
      y[at] = inputs.empty() ? -std::numeric_limits<double>::infinity() : x[winner(x, inputs)];
    } else {
      double sum = 0;
      for (const std::size_t i : inputs) sum += x[i];
      y[at] = inputs.empty() ? 0.0 : sum / divisor;
    }
  });
  return y;
}

Values pool_margins(const Pool2dDesc& d, const Values& x) {
  Values margins(static_cast<std::size_t>(d.batch * d.out.elements()),
                 std::numeric_limits<double>::infinity());
  if (d.kind != PoolKind::max) return margins;
  for_windows(d, [&](std::size_t at, const std::vector<std::size_t>& inputs, double) {
    if (inputs.empty()) return;
    const std::size_t best = winner(x, inputs);
    for (const std::size_t i : inputs) {
      if (i != best) margins[at] = std::min(margins[at], x[best] - x[i]);
    }
  });
  return margins;
}

Values pool_backward(const Pool2dDesc& d, const Values& x, const Values& dy) {
  Values dx(x.size(), 0.0);
  for_windows(d, [&](std::size_t at, const std::vector<std::size_t>& inputs, double divisor) {
    if (inputs.empty()) return;
    if (d.kind == PoolKind::max) {
      dx[winner(x, inputs)] += dy[at];
    } else {
      for (const std::size_t i : inputs) dx[i] += dy[at] / divisor;
    }
  });
  return dx;
}

Values conv2d(const Conv2dDesc& d, const Values& x, const Values& weight, const Values& bias) {
  Values y = conv(d, x, weight, d.bias ? bias : Values());
  if (d.relu) y = relu(std::move(y));
  return d.pool ? pool(*d.pool, y) : y;
}

Gradients conv2d_backward(const Conv2dDesc& d, const Values& x, const Values& weight,
                          const Values& bias, Values dy) {
  if (d.relu || d.pool) {
    Values z = conv(d, x, weight, d.bias ? bias : Values());
    if (d.relu) z = relu(std::move(z));
    if (d.pool) dy = pool_backward(*d.pool, z, dy);
    if (d.relu) dy = relu_backward(std::move(dy), z);
  }
  Gradients g{Values(x.size(), 0.0), Values(weight.size(), 0.0), {}};
  ConvSums(d).add_to_x(dy, weight, g.x);
  ConvSums(d).add_to_weight(x, dy, g.weight);
  if (d.bias) {
    g.bias.assign(static_cast<std::size_t>(d.conv_out.c), 0.0);
    add_to_channels(dy, g.bias);
  }
  return g;
}

Values conv_transpose2d(const ConvTranspose2dDesc& d, const Values& x, const Values& weight,
                        const Values& bias) {
  Values y(static_cast<std::size_t>(d.batch * d.out.elements()), 0.0);
  const Conv2dDesc transposed = transposed_convolution(d);
  ConvSums(transposed).add_to_x(x, weight, y);
  if (d.bias) add_bias(bias, y);
  return y;
}

Gradients conv_transpose2d_backward(const ConvTranspose2dDesc& d, const Values& x,
                                    const Values& weight, const Values& dy) {
  Gradients g{Values(x.size(), 0.0), Values(weight.size(), 0.0), {}};
  const Conv2dDesc transposed = transposed_convolution(d);
  ConvSums(transposed).add_to_y(dy, weight, g.x);
  ConvSums(transposed).add_to_weight(dy, x, g.weight);
  if (d.bias) {
    g.bias.assign(static_cast<std::size_t>(d.out.c), 0.0);
    add_to_channels(dy, g.bias);
  }
  return g;
}

Values linear(const LinearDesc& d, const Values& x, const Values& weight, const Values& bias) {
  return conv2d(as_convolution(d), x, weight, bias);
}

Gradients linear_backward(const LinearDesc& d, const Values& x, const Values& weight,
                          const Values& bias, const Values& dy) {
  return conv2d_backward(as_convolution(d), x, weight, bias, dy);
}

CrossEntropy cross_entropy(const CrossEntropyDesc& d, const Values& logits,
                           const std::vector<std::int32_t>& labels, double scale,
                           const Values& targets) {
  CrossEntropy out;
  const bool soft = d.targets.kind == TargetKind::soft_labels;
  const auto width = static_cast<std::size_t>(d.targets.floats());
  out.gradient.resize(logits.size());
  const auto classes = static_cast<std::size_t>(d.classes);
  const double smoothing = static_cast<double>(d.label_smoothing);
  for (std::size_t k = 0; k < static_cast<std::size_t>(d.batch); ++k) {
    const double* row = logits.data() + k * classes;
    const double* largest = std::max_element(row, row + classes);
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c) sum += std::exp(row[c] - *largest);
    double loss = 0;
    out.prediction.push_back(static_cast<std::int32_t>(largest - row));
    const double own = d.targets.weighted ? targets[(k + 1) * width - 1] : 1.0;
    if (d.ignore_index == labels[k] || own == 0) {
      out.sample_loss.push_back(0);
      continue;
    }
    const auto weight = [&](std::size_t c) {
      return d.class_weights.empty() ? 1.0 : static_cast<double>(d.class_weights[c]);
    };
    double mass = 0;
    const auto target = [&](std::size_t c) {
      const double given = soft                                        ? targets[k * width + c]
                           : static_cast<std::int32_t>(c) == labels[k] ? 1.0
                                                                       : 0.0;
      const double share = smoothing / static_cast<double>(d.classes) + (1 - smoothing) * given;
      return share * weight(c) * own;
    };
    for (std::size_t c = 0; c < classes; ++c) mass += target(c);
    for (std::size_t c = 0; c < classes; ++c) {
      const double log_probability = row[c] - *largest - std::log(sum);
      if (target(c) > 0) loss -= target(c) * log_probability;
      out.gradient[k * classes + c] = (mass * std::exp(log_probability) - target(c)) * scale;
    }
    out.sample_loss.push_back(loss);
    out.loss_sum += loss;
    out.weight += own * (soft ? 1.0 : weight(static_cast<std::size_t>(labels[k])));
    ++out.labelled;
    out.correct += out.prediction.back() == labels[k] ? 1 : 0;
  }
  return out;
}

namespace {

/// Mean of every channel, and 1 / standard deviation with the biased variance.
struct ChannelStatistics {
  Values mean, inverse;
};
ChannelStatistics statistics_of(const BatchNormDesc& d, const Values& x) {
  const auto c = static_cast<std::size_t>(d.shape.c);
  const double rows = static_cast<double>(x.size()) / static_cast<double>(c);
  ChannelStatistics s{Values(c, 0.0), Values(c, 0.0)};
  for_channels(x, c, [&](std::size_t i, std::size_t k) { s.mean[k] += x[i]; });
  for (double& mean : s.mean) mean /= rows;
  for_channels(x, c, [&](std::size_t i, std::size_t k) {
    s.inverse[k] += (x[i] - s.mean[k]) * (x[i] - s.mean[k]) / rows;
  });
  for (double& variance : s.inverse) {
    variance = 1 / std::sqrt(variance + static_cast<double>(d.eps));
  }
  return s;
}

/// Normalises, scales and shifts each channel, then applies the ReLU if the description has one.
Values normalised(const BatchNormDesc& d, const ChannelStatistics& s, const Values& x,
                  const Values& weight, const Values& bias) {
  Values y(x.size());
  for_channels(x, s.mean.size(), [&](std::size_t i, std::size_t c) {
    y[i] = (x[i] - s.mean[c]) * s.inverse[c];
    if (d.affine) y[i] = y[i] * weight[c] + bias[c];
  });
  return d.relu ? relu(y) : y;
}

ChannelStatistics running_statistics(const BatchNormDesc& d, const RunningNormParams& params) {
  ChannelStatistics s{params.mean, params.variance};
  for (double& variance : s.inverse) {
    variance = 1 / std::sqrt(variance + static_cast<double>(d.eps));
  }
  return s;
}

/// Sums of a backward pass for each channel: the sum of dy, and that of dy times the normalised x.
struct ChannelSums {
  Values dy, product;
};
ChannelSums sums_of(const ChannelStatistics& s, const Values& x, const Values& dy) {
  const std::size_t channels = s.mean.size();
  ChannelSums sums{Values(channels, 0.0), Values(channels, 0.0)};
  for_channels(x, channels, [&](std::size_t i, std::size_t c) {
    sums.dy[c] += dy[i];
    sums.product[c] += dy[i] * (x[i] - s.mean[c]) * s.inverse[c];
  });
  return sums;
}

}  // namespace

Values batch_norm(const BatchNormDesc& d, const Values& x, const Values& weight,
                  const Values& bias) {
  return normalised(d, statistics_of(d, x), x, weight, bias);
}

Gradients batch_norm_backward(const BatchNormDesc& d, const Values& x, const Values& weight,
                              const Values& bias, Values dy) {
  if (d.relu) dy = relu_backward(dy, batch_norm(d, x, weight, bias));
  const ChannelStatistics s = statistics_of(d, x);
  const double rows = static_cast<double>(x.size()) / static_cast<double>(s.mean.size());
  ChannelSums sums = sums_of(s, x, dy);
  Gradients g;
  g.x.resize(x.size());
  for_channels(x, s.mean.size(), [&](std::size_t i, std::size_t c) {
    const double normalised = (x[i] - s.mean[c]) * s.inverse[c];
    g.x[i] = (d.affine ? weight[c] : 1.0) * s.inverse[c] *
             (dy[i] - sums.dy[c] / rows - normalised * sums.product[c] / rows);
  });
  if (d.affine) {
    g.weight = std::move(sums.product);
    g.bias = std::move(sums.dy);
  }
  return g;
}

Values running_norm(const BatchNormDesc& d, const Values& x, const RunningNormParams& params) {
  return normalised(d, running_statistics(d, params), x, params.weight, params.bias);
}

Gradients running_norm_backward(const BatchNormDesc& d, const Values& x,
                                const RunningNormParams& params, Values dy) {
  if (d.relu) dy = relu_backward(dy, running_norm(d, x, params));
  const ChannelStatistics s = running_statistics(d, params);
  Gradients g;
  g.x.resize(x.size());
  for_channels(x, s.mean.size(), [&](std::size_t i, std::size_t c) {
    g.x[i] = (d.affine ? params.weight[c] : 1.0) * s.inverse[c] * dy[i];
  });
  if (d.affine) {
    ChannelSums sums = sums_of(s, x, dy);
    g.weight = std::move(sums.product);
    g.bias = std::move(sums.dy);
  }
  return g;
}

}  // namespace dpt::reference
