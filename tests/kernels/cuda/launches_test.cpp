// The number of kernels that an operation queues, as counted by the emulation.
#if __has_include("emulation/control.h")
#include <doctest/doctest.h>

#include "emulation/control.h"
#include "kernels/common/bf16.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/conv2d.h"
#include "kernels/cuda/ops.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

struct Launches {
  std::size_t forward = 0, backward = 0;
};

/// Returns the launches of an operation with that many elements, all of type `T`.
template <class T>
Launches launches(const GPU& gpu, Op& op, std::int64_t x_count, std::int64_t weights,
                  std::int64_t biases, std::int64_t y_count) {
  const auto zeros = [](std::int64_t count) {
    return std::vector<T>(static_cast<std::size_t>(count));
  };
  const auto floats = [](std::size_t count) { return std::vector<float>(count); };
  const GpuArray<T> x(gpu, zeros(x_count)), dx(gpu, zeros(x_count)), y(gpu, zeros(y_count)),
      dy(gpu, zeros(y_count)), weight(gpu, zeros(weights)), bias16(gpu, zeros(biases));
  const GpuArray<float> bias(gpu, floats(static_cast<std::size_t>(biases))),
      dbias(gpu, floats(static_cast<std::size_t>(biases))),
      dweight(gpu, floats(static_cast<std::size_t>(weights))),
      scratch(gpu, floats(op.scratch_bytes() / sizeof(float) + 1)),
      saved(gpu, floats(op.saved_bytes() / sizeof(float) + 1));
  const auto address = [](const void* memory) {
    return DevPtr{reinterpret_cast<std::uintptr_t>(memory)};
  };
  OpArgs args;
  args.x = address(x.get());
  args.dx = address(dx.get());
  args.y = address(y.get());
  args.dy = address(dy.get());
  ParamArgs& of_weight = args.params[WeightAndBias::kWeight];
  (std::is_same_v<T, float> ? of_weight.f32 : of_weight.bf16) = address(weight.get());
  of_weight.gradient = address(dweight.get());
  args.params[WeightAndBias::kBias] = {address(bias.get()), address(bias16.get()),
                                       address(dbias.get())};
  args.scratch = address(scratch.get());
  args.saved = address(saved.get());
  const auto counted = [&](const auto& work) {
    cuda_check(cudaStreamSynchronize(gpu.context().stream), "cudaStreamSynchronize");
    const std::size_t before = emulation::work_done();
    work();
    cuda_check(cudaStreamSynchronize(gpu.context().stream), "cudaStreamSynchronize");
    return emulation::work_done() - before;
  };
  Launches result;
  result.forward = counted([&] { op.forward(args); });
  result.backward = counted([&] { op.backward(args); });
  return result;
}

TEST_CASE("a bias in bf16 costs no kernel, nor does a ReLU before the sums of its gradient") {
  const GPU gpu;
  // A convolution with groups. The fixed rule leaves it to cuDNN, whose plans compute no gradient
  // of the bias.
  Conv2dDesc conv = conv_case(2, {6, 6, 8}, 8, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 2);
  conv.bias = conv.relu = true;
  LinearDesc linear;
  linear.batch = 8;
  linear.in = 16;
  linear.out = 24;
  linear.relu = true;
  for (const DType type : {DType::f32, DType::bf16}) {
    CAPTURE(name_of(type));
    conv.type = linear.type = type;
    const auto of = type == DType::bf16 ? launches<Bf16> : launches<float>;
    const auto conv_op = make_cuda_op(gpu.context(), conv);
    CAPTURE(conv_op->implementation());
    REQUIRE(conv_op->implementation().find("emulated") != std::string::npos);
    const Launches conv_launches =
        of(gpu, *conv_op, 2 * 6 * 6 * 8, weight_count(conv), 8, 2 * conv.out.elements());
    CHECK(conv_launches.forward == 1);
    CHECK(conv_launches.backward == 3);  // ReLU with sums, weights, data
    const auto linear_op = make_cuda_op(gpu.context(), linear);
    const Launches linear_launches = of(gpu, *linear_op, 8 * 16, 16 * 24, 24, 8 * 24);
    CHECK(linear_launches.forward == 1);
    CHECK(linear_launches.backward == 3);
  }
}

TEST_CASE("batch norm costs two kernels forward and two backward") {
  const std::unique_ptr<Backend> gpu = make_cuda_backend(0, {});
  BatchNormDesc d;
  d.batch = 60;
  d.shape = {8, 8, 16};
  const std::unique_ptr<Op> op = gpu->make(d);
  const std::int64_t count = d.batch * d.shape.elements();
  OpRunner runner(*gpu, *op, random_values(count, 1), random_values(16, 2), random_values(16, 3),
                  count);
  const OpArgs args = runner.args();
  const auto launched = [&](const auto& work) {
    gpu->synchronize();
    const std::size_t before = emulation::work_done();
    work();
    gpu->synchronize();
    return emulation::work_done() - before;
  };
  CHECK(launched([&] { op->forward_statistics(args); }) == 1);
  CHECK(launched([&] { op->forward(args); }) == 1);
  CHECK(launched([&] { op->backward_statistics(args); }) == 1);
  OpArgs with_parts = args;
  with_parts.dy_parts = {args.dy, args.dx, args.y};
  CHECK(launched([&] { op->backward_statistics(with_parts); }) == 1);
  CHECK(launched([&] { op->backward(args); }) == 1);
}

}  // namespace
}  // namespace dpt::testing
#endif
