// Compares a layer in bf16 on every backend with the reference. The reference gets bf16 inputs, and
// its results are rounded once. Parameters are fp32, as the operations read them.
#pragma once

#include "engine/layers/activation_shape.h"
#include "kernels/devices.h"
#include "tests/kernels/bf16_values.h"
#include "tests/support/layer_case.h"

namespace dpt::testing {

inline void check_in_bf16(const Layer& layer, const std::vector<ActivationShape>& in,
                          std::int64_t batch) {
  const Maths maths = maths_of(layer, in, batch);
  const auto bf16 = [](std::size_t count, std::uint64_t seed) {
    return rounded(random_values(static_cast<std::int64_t>(count), seed));
  };
  const std::vector<Bf16> x = bf16(maths.x, 1), dy = bf16(maths.y, 2);
  const std::vector<std::vector<float>> params = random_params(maths, 3);
  const Values at = to_double(widened(x));
  const Values y = maths.forward(at, to_double(params));
  const Derivatives want = maths.backward(at, to_double(params), to_double(widened(dy)));
  for (const std::string& name : backend_names()) {
    CAPTURE(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    LayerContext context;
    context.batch = batch;
    context.in = in;
    context.out = layer.infer(in);
    context.type = DType::bf16;
    const std::unique_ptr<Op> op = backend->make(layer.describe(context));
    OnDevice<Bf16> x_at(*backend, x), dx_at(*backend, x), dy_at(*backend, dy), y_at(*backend, dy);
    std::vector<OnDevice<float>> params_at, gradients_at;
    OnDevice<float> saved(*backend, std::vector<float>(op->saved_bytes() / sizeof(float) + 1));
    OnDevice<float> scratch(*backend, std::vector<float>(op->scratch_bytes() / sizeof(float) + 1));
    OpArgs args;
    args.x = x_at.ptr();
    args.dx = dx_at.ptr();
    std::size_t offset = 0;
    for (std::size_t k = 1; k < maths.inputs; ++k) {
      offset += maths.input(k - 1) * sizeof(Bf16);
      args.more_x[k - 1] = x_at.ptr() + offset;
      args.more_dx[k - 1] = dx_at.ptr() + offset;
    }
    args.y = y_at.ptr();
    args.dy = dy_at.ptr();
    for (std::size_t k = 0; k < params.size(); ++k) {
      params_at.emplace_back(*backend, params[k]);
      gradients_at.emplace_back(*backend, params[k]);
      args.params[k] = {params_at[k].ptr(), {}, gradients_at[k].ptr()};
    }
    args.saved = saved.ptr();
    args.scratch = scratch.ptr();
    op->forward(args);
    op->backward(args);
    saved.check_guard();
    scratch.check_guard();
    check_rounded("y", widened(y_at.get()), y);
    check_rounded("dx", widened(dx_at.get()), want.x);
    for (std::size_t k = 0; k < params.size(); ++k) {
      check_close(gradient_name(k), gradients_at[k].get(), want.params[k]);
    }
  }
}

}  // namespace dpt::testing
