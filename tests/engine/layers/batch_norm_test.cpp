#include "engine/layers/activation_shape.h"
#include "engine/layers/param_spec.h"
#include "kernels/devices.h"
#include "tests/support/layer_case.h"

namespace dpt::testing {
namespace {

TEST_CASE("BatchNorm: shapes, parameters and state") {
  const auto two = layer("BatchNorm2d");
  CHECK(infer(*two, image(3, 4, 5)).text() == "3x4x5");
  CHECK(infer_error(*two, vector_of(7)) ==
        "expected an image (C x H x W) as input, found a vector of 7 features; use BatchNorm1d, or "
        "move it before the Flatten");
  const auto one = layer("BatchNorm1d");
  CHECK(infer(*one, vector_of(7)).text() == "7");
  CHECK(infer_error(*one, image(3, 4, 5)) ==
        "expected a vector of features as input, found an image of 3x4x5 (C x H x W); use "
        "BatchNorm2d, or add {type: Flatten} before it");
  CHECK_FALSE(two->is_view());

  const ActivationShape in = image(3, 4, 5);
  const std::vector<ParamSpec> params = two->params({&in, 1});
  REQUIRE(params.size() == 5);
  const char* const names[] = {"weight", "bias", "running_mean", "running_var",
                               "num_batches_tracked"};
  const double starts[] = {1, 0, 0, 1, 0};
  for (std::size_t i = 0; i < 5; ++i) {
    INFO(names[i]);
    CHECK(params[i].suffix == names[i]);
    CHECK(params[i].file_shape ==
          (i < 4 ? std::vector<std::int64_t>{3} : std::vector<std::int64_t>{}));
    CHECK(params[i].init.kind == InitKind::constant);
    CHECK(params[i].init.value == starts[i]);
    CHECK(params[i].role == (i < 2   ? ParamRole::trained
                             : i < 4 ? ParamRole::running
                                     : ParamRole::counter));
    CHECK(params[i].momentum == 0.1F);
  }
  // The features of a flattened image have another order on the device.
  const ActivationShape flat{{4, 5, 3}, true};
  CHECK(one->params({&flat, 1})[2].layout == ParamLayout::vector_hwc);
  CHECK(one->params({&flat, 1})[2].file_shape == std::vector<std::int64_t>{60});
  const ActivationShape plain = vector_of(60);
  CHECK(one->params({&plain, 1})[2].layout == ParamLayout::plain);

  const auto bare = layer("BatchNorm2d", {{"affine", false}, {"track_running_stats", false}});
  CHECK(bare->params({&in, 1}).empty());
  const auto average = layer("BatchNorm2d", {{"momentum", std::monostate{}}});
  CHECK(average->params({&in, 1})[2].momentum < 0);
  REQUIRE(two->coupling(false));
  CHECK_FALSE(two->coupling(false)->sync);
  CHECK(layer("BatchNorm2d", {{"sync", true}})->coupling(false)->sync);
  // A frozen norm uses its running statistics, if it has any.
  CHECK_FALSE(two->coupling(true));
  CHECK(bare->coupling(true));
}

/// Runs forward and backward on every backend, with the batch in one call, and compares the results
/// with the reference.
void check_training(const Layer& layer, const ActivationShape& in, std::int64_t batch) {
  check_gradients_of_reference(maths_of(layer, in, 4));
  const Maths maths = maths_of(layer, in, batch);
  const std::int64_t channels = in.channels();
  // The values are far from zero, where a difference of squares would lose precision.
  std::vector<float> x = random_values(static_cast<std::int64_t>(maths.x), 1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += static_cast<float>(i % 5);
  const std::vector<std::vector<float>> params = random_params(maths, 2);
  const std::vector<float> dy = random_values(static_cast<std::int64_t>(maths.y), 4);
  const Values y = maths.forward(to_double(x), to_double(params));
  const Derivatives want = maths.backward(to_double(x), to_double(params), to_double(dy));
  for (const std::string& name : backend_names()) {
    INFO(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    const std::unique_ptr<Op> op = compile(layer, *backend, in, batch);
    CHECK(op->coupled_channels() == channels);
    OpRunner runner(*backend, *op, params, x, static_cast<std::int64_t>(maths.y));
    check_close("y", runner.forward(), y, 1e-5);
    const OpResult first = runner.backward(dy);
    check_close("dx", first.dx, want.x, 1e-5);
    check_close("dweight", first.dweight, want.params[0], 1e-5);
    check_close("dbias", first.dbias, want.params[1], 1e-5);
    runner.forward();
    const OpResult second = runner.backward(dy, GradWrite::add);
    for (std::size_t c = 0; c < first.dweight.size(); ++c) {
      CHECK(second.dweight[c] == 2 * first.dweight[c]);
      CHECK(second.dbias[c] == 2 * first.dbias[c]);
    }
  }
}

TEST_CASE("BatchNorm: numbers and gradients") {
  // More rows than a kernel sums at once, and fewer; channels that fill no vector, one, or several.
  check_training(*layer("BatchNorm2d"), image(3, 9, 7), 19);
  check_training(*layer("BatchNorm2d"), image(16, 4, 3), 6);
  check_training(*layer("BatchNorm2d", {{"affine", false}, {"eps", 0.1}}), image(37, 3, 2), 5);
  check_training(*layer("BatchNorm2d")->fuse(*layer("ReLU")), image(5, 6, 5), 20);
  check_training(*layer("BatchNorm2d")->fuse(*layer("ReLU")), image(70, 2, 2), 5);
  check_training(*layer("BatchNorm1d"), vector_of(21), 9);
  check_training(*layer("BatchNorm1d")->fuse(*layer("ReLU")), vector_of(8), 33);
}

TEST_CASE("BatchNorm: evaluation uses the running statistics") {
  const auto relu = layer("BatchNorm2d")->fuse(*layer("ReLU"));
  const ActivationShape in = image(6, 3, 2);
  constexpr std::int64_t kBatch = 4;
  const std::vector<float> x = random_values(kBatch * in.elements(), 1);
  const std::vector<float> weight = random_values(6, 2), bias = random_values(6, 3);
  const std::vector<float> mean = random_values(6, 4);
  const std::vector<float> var = {0.1F, 1.0F, 2.0F, 0.5F, 4.0F, 0.0F};
  Values want;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % 6;
    const double y = (static_cast<double>(x[i]) - mean[c]) /
                         std::sqrt(static_cast<double>(var[c]) + 1e-5) * weight[c] +
                     bias[c];
    want.push_back(std::max(y, 0.0));
  }
  for (const std::string& name : backend_names()) {
    INFO(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    const std::unique_ptr<Op> op = compile(*relu, *backend, in, kBatch, false);
    CHECK(op->coupled_channels() == 0);
    CHECK(op->saved_bytes() == 0);
    OpRunner runner(*backend, *op, x, weight, bias, kBatch * in.elements());
    const OnDevice<float> running_mean(*backend, mean), running_var(*backend, var);
    OnDevice<float> y(*backend, std::vector<float>(x.size()));
    OpArgs args = runner.args();
    args.params[BatchNormDesc::kRunningMean].f32 = running_mean.ptr();
    args.params[BatchNormDesc::kRunningVar].f32 = running_var.ptr();
    args.y = y.ptr();
    op->forward(args);
    check_close("y", y.get(), want, 1e-5);
  }
}

}  // namespace
}  // namespace dpt::testing
