// The checks of every layer's test: run the layer on every backend, compare both directions with
// the double-precision reference, and check the reference's gradients against finite differences.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/layers/activation_shape.h"
#include "kernels/devices.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
#include "tests/support/model.h"
#include "tests/support/op_runner.h"
#include "tests/support/reference_backend.h"

namespace dpt::testing {

inline ActivationShape image(std::int64_t c, std::int64_t h, std::int64_t w) {
  return {{h, w, c}, false};
}
inline ActivationShape vector_of(std::int64_t features) {
  return {{1, 1, features}, true};
}

/// Returns the options of a pooling layer.
inline Options pool(Size2 kernel, Options more = {}) {
  Options all = {{"kernel_size", kernel}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// Returns the smallest list of inputs that the layer accepts, all of shape `in`.
inline std::vector<ActivationShape> inputs_of(const Layer& layer, const ActivationShape& in) {
  return std::vector<ActivationShape>(static_cast<std::size_t>(layer.input_count().least), in);
}

inline ActivationShape infer(const Layer& layer, const ActivationShape& in) {
  return layer.infer(inputs_of(layer, in));
}
inline std::string infer_error(const Layer& layer, const ActivationShape& in) {
  return error_text([&] { infer(layer, in); });
}

inline OpDesc described(const Layer& layer, const std::vector<ActivationShape>& in,
                        std::int64_t batch, bool training = true) {
  LayerContext context;
  context.batch = batch;
  context.in = in;
  context.out = layer.infer(in);
  context.training = training;
  context.input_gradient = training;
  return layer.describe(context);
}

inline std::unique_ptr<Op> compile(const Layer& layer, Backend& backend,
                                   const std::vector<ActivationShape>& in, std::int64_t batch,
                                   bool training = true) {
  return backend.make(described(layer, in, batch, training));
}

inline std::unique_ptr<Op> compile(const Layer& layer, Backend& backend, const ActivationShape& in,
                                   std::int64_t batch, bool training = true) {
  return compile(layer, backend, inputs_of(layer, in), batch, training);
}

/// Returns the reference mathematics of a layer for the shapes of its inputs.
inline Maths maths_of(const Layer& layer, const std::vector<ActivationShape>& in,
                      std::int64_t batch) {
  return reference::maths_of(described(layer, in, batch));
}

/// Checks an analytic gradient of L = sum(y * dy) against central differences in double. The error
/// of a difference is of the order step^2 and 2^-52 / step, both below 1e-9 at 1e-5. Where a kink
/// (ReLU, the winner of a window) lies within a step, the two one-sided differences disagree; these
/// elements are skipped, and there may be only a few of them.
inline void check_differences(const std::string& what, Values at, const Values& gradient,
                              const std::function<double(const Values&)>& loss) {
  INFO(what);
  REQUIRE(at.size() == gradient.size());
  constexpr double kStep = 1e-5;
  const double here = loss(at);
  std::size_t kinks = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double value = at[i];
    at[i] = value + kStep;
    const double above = (loss(at) - here) / kStep;
    at[i] = value - kStep;
    const double below = (here - loss(at)) / kStep;
    at[i] = value;
    if (std::abs(above - below) > 1e-3) {
      ++kinks;
      continue;
    }
    const double difference = (above + below) / 2;
    INFO("element ", i, ": difference ", difference, ", analytic ", gradient[i]);
    CHECK(std::abs(difference - gradient[i]) < 1e-6 * (1 + std::abs(difference)));
  }
  CHECK(kinks * 20 <= at.size());
}

/// Returns the name of a parameter's gradient for messages.
inline std::string gradient_name(std::size_t param) {
  return "gradient of parameter " + std::to_string(param);
}

inline Maths maths_of(const Layer& layer, const ActivationShape& in, std::int64_t batch) {
  return maths_of(layer, inputs_of(layer, in), batch);
}

inline void check_gradients_of_reference(const Maths& maths) {
  const auto values = [](std::size_t count, std::uint64_t seed) {
    return to_double(random_values(static_cast<std::int64_t>(count), seed));
  };
  const Values x = values(maths.x, 11), dy = values(maths.y, 14);
  Params params;
  for (const std::size_t count : maths.params) params.push_back(values(count, 12 + params.size()));
  const Derivatives g = maths.backward(x, params, dy);
  const auto loss = [&](const Values& at_x, const Params& at_params) {
    const Values y = maths.forward(at_x, at_params);
    return std::inner_product(y.begin(), y.end(), dy.begin(), 0.0);
  };
  check_differences("dx", x, g.x, [&](const Values& at) { return loss(at, params); });
  for (std::size_t k = 0; k < params.size(); ++k) {
    check_differences(gradient_name(k), params[k], g.params[k], [&](const Values& at) {
      Params moved = params;
      moved[k] = at;
      return loss(x, moved);
    });
  }
}

/// Returns values for a layer's parameters, from seeds that begin with `seed`.
inline std::vector<std::vector<float>> random_params(const Maths& maths, std::uint64_t seed) {
  std::vector<std::vector<float>> all;
  for (const std::size_t count : maths.params) {
    all.push_back(random_values(static_cast<std::int64_t>(count), seed++));
  }
  return all;
}

/// Compares the layer with the reference on every backend. The tolerance, 2e-6 of the largest
/// result (see check_close), covers the rounding of fp32 sums, in any order, of up to a few hundred
/// products of numbers below 1.
inline void check_on_backends(const Layer& layer, const std::vector<ActivationShape>& in,
                              std::int64_t batch) {
  const Maths maths = maths_of(layer, in, batch);
  const std::vector<float> x = random_values(static_cast<std::int64_t>(maths.x), 1);
  const std::vector<std::vector<float>> params = random_params(maths, 2);
  const std::vector<float> dy = random_values(static_cast<std::int64_t>(maths.y), 4);
  const Values y = maths.forward(to_double(x), to_double(params));
  const Derivatives want = maths.backward(to_double(x), to_double(params), to_double(dy));
  // Without separate gradients, all inputs have the same gradient.
  const std::size_t gradients = maths.sizes.empty() ? maths.x / maths.inputs : maths.x;
  const Values dx(want.x.begin(), want.x.begin() + static_cast<std::ptrdiff_t>(gradients));
  for (const std::string& name : backend_names()) {
    INFO(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    const std::unique_ptr<Op> op = compile(layer, *backend, in, batch);
    const auto inputs = static_cast<int>(maths.inputs);
    OpRunner runner(*backend, *op, params, x, static_cast<std::int64_t>(maths.y), inputs,
                    maths.sizes);
    check_close("y", runner.forward(), y);
    const OpResult first = runner.backward(dy);
    check_close("dx", first.dx, dx);
    for (std::size_t k = 0; k < params.size(); ++k) {
      check_close(gradient_name(k), first.gradients[k], want.params[k]);
    }
    runner.forward();
    const OpResult second = runner.backward(dy, GradWrite::add);
    const auto twice = [](Values values) {
      for (double& value : values) value *= 2;
      return values;
    };
    check_close("dx is overwritten", second.dx, dx);
    for (std::size_t k = 0; k < params.size(); ++k) {
      check_close(gradient_name(k) + " is added to", second.gradients[k], twice(want.params[k]));
    }

    const std::unique_ptr<Op> inference = compile(layer, *backend, in, batch, false);
    OpRunner eval(*backend, *inference, params, x, static_cast<std::int64_t>(maths.y), inputs,
                  maths.sizes);
    check_close("y in inference", eval.forward(), y);
  }
}

inline void check_on_backends(const Layer& layer, const ActivationShape& in, std::int64_t batch) {
  check_on_backends(layer, inputs_of(layer, in), batch);
}

/// Checks the layer on every backend, and the reference's gradients against finite differences.
inline void check_layer(const Layer& layer, const std::vector<ActivationShape>& in,
                        std::int64_t batch = 3) {
  check_gradients_of_reference(maths_of(layer, in, 2));
  check_on_backends(layer, in, batch);
}
inline void check_layer(const Layer& layer, const ActivationShape& in, std::int64_t batch = 3) {
  check_layer(layer, inputs_of(layer, in), batch);
}

/// Returns y of a layer without parameters for a single one-channel image.
inline Values output_of(const Layer& layer, const ActivationShape& in, const Values& x) {
  return maths_of(layer, in, 1).forward(x, {});
}

}  // namespace dpt::testing
