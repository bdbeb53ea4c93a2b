#include "kernels/reference/maths.h"

#include <cstdint>
#include <initializer_list>
#include <span>
#include <variant>

#include "kernels/reference/reference_shapes.h"

namespace dpt::reference {
namespace {

Maths sizes(std::int64_t x, std::int64_t y, std::initializer_list<std::int64_t> params,
            bool input_gradient) {
  Maths maths;
  maths.x = static_cast<std::size_t>(x);
  maths.y = static_cast<std::size_t>(y);
  for (const std::int64_t count : params) maths.params.push_back(static_cast<std::size_t>(count));
  maths.input_gradient = input_gradient;
  return maths;
}

void set_inputs(Maths& maths, std::int64_t batch, std::span<const SampleShape> in) {
  maths.inputs = in.size();
  for (const SampleShape& shape : in) {
    maths.sizes.push_back(static_cast<std::size_t>(batch * shape.elements()));
  }
}

/// Adds forward and backward to the sizes of an operation without parameters.
template <class Forward, class Backward>
Maths with(Maths maths, const Forward& forward, const Backward& backward) {
  maths.forward = [=](const Values& x, const Params&) { return forward(x); };
  maths.backward = [=](const Values& x, const Params&, const Values& dy) {
    return Derivatives(backward(x, dy), {});
  };
  return maths;
}

Maths maths(const Conv2dDesc& d) {
  Maths m = sizes(
      d.batch * d.in.elements(), d.batch * d.out.elements(),
      {d.conv_out.c * d.kernel.h * d.kernel.w * (d.in.c / d.groups), d.bias ? d.conv_out.c : 0},
      d.input_gradient);
  m.forward = [d](const Values& x, const Params& p) { return conv2d(d, x, p[0], p[1]); };
  m.backward = [d](const Values& x, const Params& p, const Values& dy) {
    return conv2d_backward(d, x, p[0], p[1], dy);
  };
  return m;
}

Maths maths(const ConvTranspose2dDesc& d) {
  Maths m = sizes(d.batch * d.in.elements(), d.batch * d.out.elements(),
                  {d.in.c * d.kernel.h * d.kernel.w * (d.out.c / d.groups), d.bias ? d.out.c : 0},
                  d.input_gradient);
  m.forward = [d](const Values& x, const Params& p) { return conv_transpose2d(d, x, p[0], p[1]); };
  m.backward = [d](const Values& x, const Params& p, const Values& dy) {
    return conv_transpose2d_backward(d, x, p[0], dy);
  };
  return m;
}

Maths maths(const LinearDesc& d) {
  Maths m =
      sizes(d.batch * d.in, d.batch * d.out, {d.in * d.out, d.bias ? d.out : 0}, d.input_gradient);
  m.forward = [d](const Values& x, const Params& p) { return linear(d, x, p[0], p[1]); };
  m.backward = [d](const Values& x, const Params& p, const Values& dy) {
    return linear_backward(d, x, p[0], p[1], dy);
  };
  return m;
}

Maths maths(const Pool2dDesc& d) {
  return with(
      sizes(d.batch * d.in.elements(), d.batch * d.out.elements(), {}, d.input_gradient),
      [d](const Values& x) { return pool(d, x); },
      [d](const Values& x, const Values& dy) { return pool_backward(d, x, dy); });
}

Maths maths(const ReluDesc& d) {
  const std::int64_t count = d.batch * d.shape.elements();
  return with(
      sizes(count, count, {}, true), [](const Values& x) { return relu(x); },
      [](const Values& x, const Values& dy) { return relu_backward(dy, x); });
}

Maths maths(const ActivationDesc& d) {
  const std::int64_t count = d.batch * d.shape.elements();
  return with(
      sizes(count, count, {}, true), [d](const Values& x) { return activation(d, x); },
      [d](const Values& x, const Values& dy) { return activation_backward(d, x, dy); });
}

Maths maths(const DropoutDesc& d) {
  const std::int64_t count = d.batch * d.shape.elements();
  std::vector<std::int64_t> ids;
  for (std::int64_t k = 0; k < d.batch; ++k) ids.push_back(k);
  const auto dropped = [d, ids](const Values& values) {
    return product(values, dropout_factors(d, ids, 0));
  };
  return with(sizes(count, count, {}, true), dropped,
              [dropped](const Values&, const Values& dy) { return dropped(dy); });
}

Maths maths(const SumDesc& d) {
  const std::int64_t count = d.batch * d.shape.elements();
  Maths m = sizes(d.inputs * count, count, {}, true);
  m.inputs = static_cast<std::size_t>(d.inputs);
  return with(
      std::move(m), [d](const Values& x) { return sum(d, x); },
      [d](const Values& x, const Values& dy) { return sum_backward(d, x, dy); });
}

Maths maths(const ConcatDesc& d) {
  Maths m = sizes(d.batch * d.out.elements(), d.batch * d.out.elements(), {}, true);
  set_inputs(m, d.batch, d.in);
  return with(
      std::move(m), [d](const Values& x) { return concat(d, x); },
      [d](const Values&, const Values& dy) { return concat_backward(d, dy); });
}

Maths maths(const ProductDesc& d) {
  Maths m = sizes(d.batch * (d.in[0].elements() + d.in[1].elements()), d.batch * d.out.elements(),
                  {}, true);
  set_inputs(m, d.batch, d.in);
  return with(
      std::move(m), [d](const Values& x) { return product(d, x); },
      [d](const Values& x, const Values& dy) { return product_backward(d, x, dy); });
}

Maths maths(const PixelMapDesc& d) {
  return with(
      sizes(d.batch * d.in.elements(), d.batch * d.out.elements(), {}, true),
      [d](const Values& x) { return pixel_map(d, x); },
      [d](const Values&, const Values& dy) { return pixel_map_backward(d, dy); });
}

Maths maths(const BatchNormDesc& d) {
  const std::int64_t count = d.batch * d.shape.elements();
  const std::int64_t affine = d.affine ? d.shape.c : 0;
  if (d.batch_statistics) {
    Maths m = sizes(count, count, {affine, affine}, d.input_gradient);
    m.forward = [d](const Values& x, const Params& p) { return batch_norm(d, x, p[0], p[1]); };
    m.backward = [d](const Values& x, const Params& p, const Values& dy) {
      return batch_norm_backward(d, x, p[0], p[1], dy);
    };
    return m;
  }
  Maths m = sizes(count, count, {affine, affine, d.shape.c, d.shape.c}, d.input_gradient);
  m.forward = [d](const Values& x, const Params& p) {
    return running_norm(d, x, {p[0], p[1], p[2], p[3]});
  };
  m.backward = [d](const Values& x, const Params& p, const Values& dy) {
    return running_norm_backward(d, x, {p[0], p[1], p[2], p[3]}, dy);
  };
  return m;
}

Maths maths(const GroupNormDesc& d) {
  const std::int64_t count = d.batch * d.shape.elements();
  Maths m =
      sizes(count, count, {d.weight ? d.shape.c : 0, d.bias ? d.shape.c : 0}, d.input_gradient);
  m.forward = [d](const Values& x, const Params& p) { return group_norm(d, x, p[0], p[1]); };
  m.backward = [d](const Values& x, const Params& p, const Values& dy) {
    return group_norm_backward(d, x, p[0], dy);
  };
  return m;
}

Maths maths(const ChannelScaleDesc& d) {
  const std::int64_t count = d.batch * d.shape.elements();
  Maths m = sizes(count, count, {d.one_weight ? 1 : d.shape.c}, d.input_gradient);
  m.forward = [d](const Values& x, const Params& p) { return channel_scale(d, x, p[0]); };
  m.backward = [d](const Values& x, const Params& p, const Values& dy) {
    return channel_scale_backward(d, x, p[0], dy);
  };
  return m;
}

}  // namespace

Maths maths_of(const OpDesc& desc) {
  return std::visit([](const auto& each) { return maths(each); }, desc);
}

}  // namespace dpt::reference
