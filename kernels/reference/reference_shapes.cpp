#include "kernels/reference/reference_shapes.h"

#include <cmath>
#include <cstddef>

namespace dpt::reference {
namespace {

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Calls use(input_index, y_index) for every element. input_index counts through all inputs, one
/// after another.
template <class Use>
void for_concat(const ConcatDesc& d, const Use& use) {
  const std::int64_t pixels = d.batch * d.out.h * d.out.w;
  std::int64_t at = 0, channel = 0;
  for (const SampleShape& in : d.in) {
    if (d.flatten) {
      for (std::int64_t n = 0; n < d.batch; ++n) {
        for (std::int64_t pixel = 0; pixel < in.h * in.w; ++pixel) {
          for (std::int64_t c = 0; c < in.c; ++c) {
            use(index(at++), index(n * d.out.c + channel + c * in.h * in.w + pixel));
          }
        }
      }
      channel += in.elements();
      continue;
    }
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
      for (std::int64_t c = 0; c < in.c; ++c)
        use(index(at++), index(pixel * d.out.c + channel + c));
    }
    channel += in.c;
  }
}

/// Calls use(a_index, b_index, y_index) for every element. Both input indices count through the two
/// inputs, one after another.
template <class Use>
void for_product(const ProductDesc& d, const Use& use) {
  const std::int64_t second = d.batch * d.in[0].elements();
  std::int64_t at = 0;
  for (std::int64_t n = 0; n < d.batch; ++n) {
    for (std::int64_t pixel = 0; pixel < d.out.h * d.out.w; ++pixel) {
      for (std::int64_t c = 0; c < d.out.c; ++c) {
        const auto of = [&](const SampleShape& in) {
          const std::int64_t pixels = in.h * in.w;
          return (n * pixels + (pixels == 1 ? 0 : pixel)) * in.c + c;
        };
        use(index(of(d.in[0])), index(second + of(d.in[1])), index(at++));
      }
    }
  }
}

/// Calls use(x_index, y_index) for every element of y that copies an element of x.
template <class Use>
void for_pixel_map(const PixelMapDesc& d, const Use& use) {
  for (std::int64_t n = 0; n < d.batch; ++n) {
    for (std::int64_t i = 0; i < d.in.h * d.scale.h; ++i) {
      for (std::int64_t j = 0; j < d.in.w * d.scale.w; ++j) {
        const std::int64_t p = i + d.before.h, q = j + d.before.w;
        if (p < 0 || q < 0 || p >= d.out.h || q >= d.out.w) continue;
        for (std::int64_t c = 0; c < d.in.c; ++c) {
          use(index(((n * d.in.h + i / d.scale.h) * d.in.w + j / d.scale.w) * d.in.c + c),
              index(((n * d.out.h + p) * d.out.w + q) * d.out.c + c));
        }
      }
    }
  }
}

/// The set of values with which an element is normalised, and its channel.
struct Member {
  std::size_t set, channel;
};
Member member_of(const GroupNormDesc& d, std::size_t i) {
  const std::size_t channel = i % index(d.shape.c);
  return {i / index(d.shape.elements()) * index(d.groups) + channel / index(d.shape.c / d.groups),
          channel};
}

/// Mean of every set, and 1 / standard deviation with the biased variance.
struct SetStatistics {
  Values mean, inverse;
  double values = 0;
};
SetStatistics statistics_of(const GroupNormDesc& d, const Values& x) {
  const std::size_t sets = index(d.batch * d.groups);
  const std::int64_t values = d.shape.elements() / d.groups;
  SetStatistics s{Values(sets, 0.0), Values(sets, 0.0), static_cast<double>(values)};
  for (std::size_t i = 0; i < x.size(); ++i) s.mean[member_of(d, i).set] += x[i] / s.values;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t set = member_of(d, i).set;
    s.inverse[set] += (x[i] - s.mean[set]) * (x[i] - s.mean[set]) / s.values;
  }
  for (double& variance : s.inverse) {
    variance = 1 / std::sqrt(variance + static_cast<double>(d.eps));
  }
  return s;
}

}  // namespace

Values concat(const ConcatDesc& d, const Values& x) {
  Values y(x.size());
  for_concat(d, [&](std::size_t from, std::size_t to) { y[to] = x[from]; });
  return y;
}
Values concat_backward(const ConcatDesc& d, const Values& dy) {
  Values dx(dy.size());
  for_concat(d, [&](std::size_t to, std::size_t from) { dx[to] = dy[from]; });
  return dx;
}

Values product(const ProductDesc& d, const Values& x) {
  Values y(index(d.batch * d.out.elements()));
  for_product(d, [&](std::size_t a, std::size_t b, std::size_t i) { y[i] = x[a] * x[b]; });
  return y;
}
Values product_backward(const ProductDesc& d, const Values& x, const Values& dy) {
  Values dx(x.size(), 0.0);
  for_product(d, [&](std::size_t a, std::size_t b, std::size_t i) {
    dx[a] += dy[i] * x[b];
    dx[b] += dy[i] * x[a];
  });
  return dx;
}

Values pixel_map(const PixelMapDesc& d, const Values& x) {
  Values y(index(d.batch * d.out.elements()), 0.0);
  for_pixel_map(d, [&](std::size_t from, std::size_t to) { y[to] = x[from]; });
  return y;
}
Values pixel_map_backward(const PixelMapDesc& d, const Values& dy) {
  Values dx(index(d.batch * d.in.elements()), 0.0);
  for_pixel_map(d, [&](std::size_t to, std::size_t from) { dx[to] += dy[from]; });
  return dx;
}

Values group_norm(const GroupNormDesc& d, const Values& x, const Values& weight,
                  const Values& bias) {
  const SetStatistics s = statistics_of(d, x);
  Values y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Member m = member_of(d, i);
    y[i] = (x[i] - s.mean[m.set]) * s.inverse[m.set];
    if (d.weight) y[i] *= weight[m.channel];
    if (d.bias) y[i] += bias[m.channel];
  }
  return y;
}

Gradients group_norm_backward(const GroupNormDesc& d, const Values& x, const Values& weight,
                              const Values& dy) {
  const SetStatistics s = statistics_of(d, x);
  Values sum(s.mean.size(), 0.0), product(s.mean.size(), 0.0);
  Gradients g{Values(x.size()), Values(d.weight ? index(d.shape.c) : 0, 0.0),
              Values(d.bias ? index(d.shape.c) : 0, 0.0)};
  const auto normalised = [&](std::size_t i) {
    const std::size_t set = member_of(d, i).set;
    return (x[i] - s.mean[set]) * s.inverse[set];
  };
  const auto scaled = [&](std::size_t i) {
    return dy[i] * (d.weight ? weight[member_of(d, i).channel] : 1.0);
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Member m = member_of(d, i);
    sum[m.set] += scaled(i) / s.values;
    product[m.set] += scaled(i) * normalised(i) / s.values;
    if (d.weight) g.weight[m.channel] += dy[i] * normalised(i);
    if (d.bias) g.bias[m.channel] += dy[i];
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t set = member_of(d, i).set;
    g.x[i] = s.inverse[set] * (scaled(i) - sum[set] - normalised(i) * product[set]);
  }
  return g;
}

Values channel_scale(const ChannelScaleDesc& d, const Values& x, const Values& weight) {
  Values y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double factor = weight[d.one_weight ? 0 : i % index(d.shape.c)];
    y[i] = d.negative_only && x[i] > 0 ? x[i] : x[i] * factor;
  }
  return y;
}

Gradients channel_scale_backward(const ChannelScaleDesc& d, const Values& x, const Values& weight,
                                 const Values& dy) {
  Gradients g{Values(x.size()), Values(weight.size(), 0.0), {}};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t at = d.one_weight ? 0 : i % index(d.shape.c);
    const bool counts = !d.negative_only || !(x[i] > 0);
    g.x[i] = counts ? dy[i] * weight[at] : dy[i];
    if (counts) g.weight[at] += dy[i] * x[i];
  }
  return g;
}

}  // namespace dpt::reference
