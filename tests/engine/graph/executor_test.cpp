// Compares losses and gradients of whole nets with plain mathematics, and checks that the memory
// plan does not change results.
#include "engine/graph/executor.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "engine/graph/make_plan.h"
#include "kernels/devices.h"
#include "tests/engine/graph/net.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"

#if __has_include("emulation/control.h")
#include "emulation/control.h"
#endif

namespace dpt::testing {
namespace {

bool couples(const Plan& plan) {
  return std::any_of(plan.nodes.begin(), plan.nodes.end(),
                     [](const Node& node) { return node.coupling.has_value(); });
}

std::vector<TrainSpec> nets() {
  return {small_lenet(),    odd_net(),    linear_net(), branched_net(),
          normalised_net(), joined_net(), shared_net()};
}

/// Compares losses, predictions and gradients of a training and an evaluating executor with
/// NetMaths.
void check_net(Backend& backend, const Plan& plan, const TestBatch& batch, double tolerance,
               float label_smoothing = 0) {
  INFO(backend.info().name);
  const std::vector<float> params = start_params(plan);
  const NetMaths maths(plan, batch, label_smoothing);
  const reference::CrossEntropy want = maths.loss(to_double(params));

  NetRunner runner(backend, plan, params, batch, true, label_smoothing);
  TrainResult result = runner.train();
  Values gradient = maths.gradient(to_double(params));
  // If the net keeps running statistics, those of the batch follow the gradients.
  result.grads.resize(static_cast<std::size_t>(plan.trained_floats));
  gradient.resize(result.grads.size());
  check_close("gradient", result.grads, gradient, tolerance);
  CHECK(result.metrics.loss_sum == doctest::Approx(want.loss_sum).epsilon(tolerance * 10));
  CHECK(result.metrics.sums[0].value() == static_cast<double>(want.correct));
  CHECK(result.metrics.count.value() == static_cast<double>(batch.size));

  std::vector<NetRunner*> evaluating = {&runner};
  std::optional<NetRunner> inference;
  if (!couples(plan)) {  // a net that couples samples would use running statistics
    evaluating.push_back(&inference.emplace(backend, plan, params, batch, false, label_smoothing));
  }
  for (NetRunner* each : evaluating) {
    const EvalResult eval = each->evaluate();
    check_close("loss per sample", eval.loss, want.sample_loss, tolerance * 10);
    CHECK(eval.prediction == want.prediction);
    CHECK(eval.metrics.loss_sum == doctest::Approx(want.loss_sum).epsilon(tolerance * 10));
    CHECK(eval.metrics.sums[0].value() == static_cast<double>(want.correct));
    CHECK(eval.metrics.count.value() == static_cast<double>(batch.size));
  }
}

#if __has_include("emulation/control.h")
/// Returns a chain of linear layers, with and without ReLU, in which memory is reused.
TrainSpec linear_chain() {
  ModelSpecBuilder model({1, 4, 4});
  model.add("Flatten");
  for (int i = 0; i < 4; ++i) {
    model.linear("a" + std::to_string(i), 12);
    if (i % 2 == 0) model.add("ReLU");
  }
  return model.linear("again", 12).shares("a1").linear("last", 3).spec();
}

TEST_CASE("linear layers compute the gradients of parameters in a branch, with the same bits") {
  if (!have_gpu()) return;
  const auto backend = make_backend(parse_device("cuda:0"), {});
  const emulation::Order before = emulation::order();
  for (const TrainSpec& spec : {small_lenet(), linear_net(), linear_chain(), shared_net()}) {
    const Plan plan = make_plan(spec);
    const TestBatch batch(plan, 5);
    const std::vector<float> params = start_params(plan);
    NetRunner plain(*backend, plan, params, batch);
    const std::vector<float> want = plain.train().grads;
    NetRunner forked(*backend, plan, params, batch);
    forked.allow_fork();
    for (const emulation::Order order : {emulation::Order{emulation::OrderKind::forward, 0},
                                         {emulation::OrderKind::reverse, 0},
                                         {emulation::OrderKind::random, 1},
                                         {emulation::OrderKind::random, 2}}) {
      emulation::set_order(order);
      forked.poison_arena();
      CHECK(same_bits(forked.train().grads, want));
      const auto work = [&] {
        forked.executor().train(forked.buffers(), forked.batch(), GradWrite::overwrite);
      };
      forked.poison_arena();
      const auto graph = backend->capture(work);
      backend->replay(*graph);
      CHECK(same_bits(forked.grads(), want));
    }
    emulation::set_order(before);
  }
}

TEST_CASE("branches shorten the longest path of LeNet's pass") {
  if (!have_gpu()) return;
  const auto backend = make_backend(parse_device("cuda:0"), {});
  const Plan plan = make_plan(small_lenet());
  const TestBatch batch(plan, 5);
  NetRunner runner(*backend, plan, start_params(plan), batch);
  const auto shape = [&] {
    const auto work = [&] {
      runner.executor().train(runner.buffers(), runner.batch(), GradWrite::overwrite);
    };
    work();
    const auto graph = backend->capture(work);
    backend->replay(*graph);
    backend->synchronize();
    return emulation::last_graph();
  };
  const emulation::GraphShape plain = shape();
  CHECK(plain.longest_path == plain.nodes);
  runner.allow_fork();
  const emulation::GraphShape forked = shape();
  CHECK(forked.nodes == plain.nodes);
  CHECK(forked.longest_path == plain.longest_path - 3);
}
#endif

TEST_CASE("the mathematics' gradient is that of its loss") {
  for (const TrainSpec& spec : nets()) {
    const Plan plan = make_plan(spec);
    const TestBatch batch(plan, 4);
    const NetMaths maths(plan, batch, 0.1F);
    Values params = to_double(start_params(plan));
    const Values gradient = maths.gradient(params);
    for (std::size_t i = 0; i < params.size(); ++i) {
      const double value = params[i];
      params[i] = value + 1e-6;
      const double above = maths.mean_loss(params);
      params[i] = value - 1e-6;
      const double below = maths.mean_loss(params);
      params[i] = value;
      CHECK((above - below) / 2e-6 == doctest::Approx(gradient[i]).epsilon(1e-5).scale(1e-3));
    }
  }
}

TEST_CASE("the memory plan is right however kernels keep their data") {
  // The reference backend overwrites memory that is free and checks memory that is in use.
  for (const Keep keep : {Keep::activations, Keep::saved}) {
    for (const TrainSpec& spec : nets()) {
      for (const Plan& plan : {make_plan(spec), unfused_plan(spec)}) {
        ReferenceBackend backend(keep);
        check_net(backend, plan, TestBatch(plan, 3), 2e-6);
      }
    }
  }
}

TEST_CASE("the memory plan is right for random chains") {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    ModelSpecBuilder model({2, 12, 12});
    const int images = static_cast<int>(random() % 7);
    std::int64_t side = 12;
    int convs = 0;
    for (int i = 0; i < images; ++i) {
      const auto kind = random() % 4;
      if (kind == 0) model.add("ReLU");
      if (kind == 1 && side > 4) {
        model.conv("conv" + std::to_string(convs++), 1 + static_cast<std::int64_t>(random() % 3),
                   3);
        side -= 2;
      }
      if (kind == 2 && side > 4) {
        model.add("AvgPool2d", {{"kernel_size", square(2)}, {"stride", square(1)}});
        side -= 1;
      }
      if (kind == 3 && side > 4) {
        model.add("MaxPool2d", {{"kernel_size", square(2)}});
        side /= 2;
      }
    }
    model.add("Flatten");
    const int vectors = static_cast<int>(random() % 4);
    for (int i = 0; i < vectors; ++i) {
      if (random() % 2) model.add("ReLU");
      if (random() % 2) model.linear("fc" + std::to_string(i), 2 + random() % 5);
      if (random() % 4 == 0) model.add("Flatten");
    }
    model.linear("last", 3);
    if (random() % 3 == 0) model.add("ReLU");
    const Plan plan = make_plan(model.spec());
    ReferenceBackend backend(random() % 2 ? Keep::activations : Keep::saved);
    check_net(backend, plan, TestBatch(plan, 2), 2e-6);
  }
}

/// Images of a network. All have the same shape, so any of them may be added to one another.
struct ImagesOfOneShape {
  ModelSpecBuilder& model;
  std::vector<std::string> images = {"input"};
  std::vector<std::string> unread = {};  ///< those that no layer reads yet

  /// Adds a layer, whose output becomes the last image.
  void add(const std::string& type, const Options& options, const std::vector<std::string>& from) {
    images.push_back("v" + std::to_string(images.size()));
    model.add(type, options, images.back(), from);
    for (const std::string& name : from) std::erase(unread, name);
    unread.push_back(images.back());
  }
};

TEST_CASE("the memory plan is right for random graphs") {
  std::mt19937 random(5);
  for (int round = 0; round < 80; ++round) {
    ModelSpecBuilder model({2, 4, 3});
    ImagesOfOneShape drawn{model};
    std::vector<std::string>&images = drawn.images, &unread = drawn.unread;
    const auto any_image = [&] { return images[random() % images.size()]; };
    const Options conv = {
        {"out_channels", integer(2)}, {"kernel_size", square(3)}, {"padding", square(1)}};
    const int count = 2 + static_cast<int>(random() % 9);
    for (int i = 0; i < count; ++i) {
      switch (random() % 7) {
        case 0:
          drawn.add("Conv2d", conv, {any_image()});
          break;
        case 1:
          drawn.add("ReLU", {}, {any_image()});
          break;
        case 2:
          drawn.add("Add", {}, {any_image(), any_image()});
          break;
        case 3:
          drawn.add("Identity", {}, {any_image()});
          break;
        case 4: {
          // Each input has a separate gradient, even if the same input occurs twice.
          std::vector<std::string> some = {any_image(), any_image()};
          if (random() % 2 == 0) some.push_back(some[0]);
          const std::string joined = "joined" + std::to_string(i);
          model.add("Concat", {}, joined, some);
          for (const std::string& name : some) std::erase(unread, name);
          drawn.add("Conv2d", conv, {joined});
          break;
        }
        case 5: {
          const std::string source = any_image();
          if (random() % 2 == 0) {
            drawn.add("Multiply", {}, {source, any_image()});
            break;
          }
          const std::string gate = "gate" + std::to_string(i);
          model.add("AdaptiveAvgPool2d", {}, gate, {any_image()});
          const bool first = random() % 2 == 0;
          drawn.add("Multiply", {}, {first ? gate : source, first ? source : gate});
          break;
        }
        default: {
          // Some images are read many times: in total more often than an operation has inputs.
          std::vector<std::string> some = {any_image(), any_image()};
          while (some.size() < kMaxInputs && random() % 4 != 0) some.push_back(some[random() % 2]);
          drawn.add("Add", {}, some);
        }
      }
    }
    while (unread.size() > 1) {
      const std::size_t some = std::min(unread.size(), std::size_t{kMaxInputs});
      drawn.add("Add", {}, {unread.begin(), unread.begin() + static_cast<std::ptrdiff_t>(some)});
    }
    model.add("Flatten").linear("last", 3);
    const TrainSpec& spec = model.spec();
    for (const Keep keep : {Keep::activations, Keep::saved}) {
      for (const Plan& plan : {make_plan(spec), unfused_plan(spec)}) {
        ReferenceBackend backend(keep);
        check_net(backend, plan, TestBatch(plan, 2), 2e-6);
      }
    }
    // On the CPU backend some operations clobber their gradient and others pass it on.
    const std::unique_ptr<Backend> cpu = make_backend(parse_device("cpu"));
    const Plan plan = make_plan(spec);
    check_net(*cpu, plan, TestBatch(plan, 2), 1e-5);
  }
}

TEST_CASE("the memory plan is right for random residual networks") {
  std::mt19937 random(3);
  const Options conv = {{"out_channels", integer(2)},
                        {"kernel_size", square(3)},
                        {"padding", square(1)},
                        {"bias", false}};
  std::vector<std::unique_ptr<Backend>> backends;
  for (const std::string& name : backend_names()) {
    backends.push_back(make_backend(parse_device(name)));
  }
  for (int round = 0; round < 30; ++round) {
    ModelSpecBuilder model({2, 4, 4});
    ImagesOfOneShape drawn{model};
    std::vector<std::string>&images = drawn.images, &unread = drawn.unread;
    const auto maybe_relu = [&] {
      if (random() % 3 > 0) drawn.add("ReLU", {}, {images.back()});
    };
    const int blocks = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < blocks; ++i) {
      // Blocks read the image before them or, rarely, an earlier one.
      const std::string from = random() % 4 > 0 ? images.back() : images[random() % images.size()];
      drawn.add("Conv2d", conv, {from});
      drawn.add("BatchNorm2d", {}, {images.back()});
      const std::string branch = images.back();
      std::vector<std::string> all = {branch, from};
      if (random() % 3 == 0) {
        drawn.add("Conv2d", conv, {from});
        drawn.add("BatchNorm2d", {}, {images.back()});
        all[1] = images.back();
      }
      if (random() % 4 == 0) all.push_back(images[random() % images.size()]);
      if (random() % 3 == 0) std::swap(all[0], all[1]);
      drawn.add("Add", {}, all);
      maybe_relu();
    }
    if (unread.size() > 1) drawn.add("Add", {}, std::vector<std::string>(unread));
    model.add("Flatten").linear("last", 3);
    const TrainSpec& spec = model.spec();
    for (const Plan& plan : {make_plan(spec), unfused_plan(spec)}) {
      for (const Keep keep : {Keep::activations, Keep::saved}) {
        ReferenceBackend backend(keep);
        check_net(backend, plan, TestBatch(plan, 3), 1e-5);
      }
      for (const auto& backend : backends) check_net(*backend, plan, TestBatch(plan, 3), 1e-4);
    }
  }
}

TEST_CASE("losses and gradients on every backend, fused and unfused") {
  for (const std::string& name : backend_names()) {
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    for (const TrainSpec& spec : nets()) {
      // Each of the few fp32 layers adds an error of about 1e-7, relative to the largest gradient.
      for (const Plan& plan : {make_plan(spec), unfused_plan(spec)}) {
        check_net(*backend, plan, TestBatch(plan, 5), 1e-5);
        // A net that couples samples needs several: a single one has no deviation from its mean.
        check_net(*backend, plan, TestBatch(plan, couples(plan) ? 4 : 1), 1e-5, 0.1F);
      }
    }
  }
}

TEST_CASE("LeNet on every backend") {
  const Plan plan = make_plan(lenet_spec());
  for (const std::string& name : backend_names()) {
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    check_net(*backend, plan, TestBatch(plan, 7), 1e-5);
  }
}

TEST_CASE("the same call gives the same bits, whatever ran before") {
  const Plan plan = make_plan(small_lenet());
  const TestBatch batch(plan, 6), other(plan, 6, 2);
  const std::vector<float> params = start_params(plan);
  for (const std::string& name : backend_names()) {
    INFO(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    NetRunner runner(*backend, plan, params, batch);
    const TrainResult first = runner.train();
    runner.evaluate();
    CHECK(same_bits(runner.train().grads, first.grads));
    runner.poison_arena();
    CHECK(same_bits(runner.train().grads, first.grads));
    NetRunner second(*backend, plan, params, batch);
    CHECK(same_bits(second.train().grads, first.grads));
    NetRunner different(*backend, plan, params, other);
    CHECK_FALSE(same_bits(different.train().grads, first.grads));
  }
}

TEST_CASE("gradients and metrics are overwritten or added to, votes are left alone") {
  const Plan plan = make_plan(small_lenet());
  const TestBatch batch(plan, 4);
  for (const std::string& name : backend_names()) {
    INFO(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    NetRunner runner(*backend, plan, start_params(plan), batch);
    const TrainResult once = runner.train();
    const TrainResult twice = runner.train(GradWrite::add);
    std::vector<double> doubled = to_double(once.grads);
    for (double& value : doubled) value *= 2;
    check_close("added", twice.grads, doubled, 1e-6);
    CHECK(twice.metrics.loss_sum == doctest::Approx(2 * once.metrics.loss_sum).epsilon(1e-6));
    CHECK(twice.metrics.sums[0].value() == 2 * once.metrics.sums[0].value());
    CHECK(twice.metrics.count.value() == 8);
    CHECK(twice.metrics.stop_votes == 0);
    CHECK(same_bits(runner.train().grads, once.grads));
    for (const Param& param : plan.params) {
      for (std::int64_t i = param.count; i % 16 != 0; ++i) {
        CHECK(once.grads[param.offset + i] == 0);  // padding
      }
    }
  }
}

TEST_CASE("evaluation outputs that nobody asked for may be null") {
  const Plan plan = make_plan(linear_net());
  const TestBatch batch(plan, 4);
  const std::unique_ptr<Backend> backend = make_backend(parse_device("cpu"));
  NetRunner runner(*backend, plan, start_params(plan), batch, false);
  const EvalResult all = runner.evaluate();
  runner.executor().evaluate(runner.buffers(), runner.batch(), {});
  EvalOutputs predictions;
  predictions.prediction = runner.outputs().prediction;
  runner.executor().evaluate(runner.buffers(), runner.batch(), predictions);
  CHECK(runner.evaluate().prediction == all.prediction);
}

TEST_CASE("implementations name every node that runs, and none is a slow reference one") {
  const Plan plan = make_plan(lenet_spec());
  const std::unique_ptr<Backend> backend = make_backend(parse_device("cpu"));
  const TestBatch batch(plan, 2);
  NetRunner runner(*backend, plan, start_params(plan), batch);
  const std::vector<std::string> all = runner.executor().implementations();
  REQUIRE(all.size() == 4);
  const char* names[] = {"conv1: ", "conv2: ", "fc1: ", "fc2: "};
  for (std::size_t i = 0; i < all.size(); ++i) {
    INFO(all[i]);
    CHECK(all[i].starts_with(names[i]));
    CHECK(all[i].find("ref") == std::string::npos);
  }
}

TEST_CASE("the calls of a step one by one: named, with their products, and all of the step") {
  const Plan plan = make_plan(lenet_spec());
  const TestBatch batch(plan, 3);
  const std::unique_ptr<Backend> backend = make_backend(parse_device("cpu"));
  NetRunner runner(*backend, plan, start_params(plan), batch);
  const TrainResult whole = runner.train();
  const std::vector<ExecutorCall> calls =
      runner.executor().train_calls(runner.buffers(), runner.batch());
  std::vector<std::string> names;
  double forward = 0, backward = 0;
  for (const ExecutorCall& call : calls) {
    names.push_back(call.name);
    (call.name.ends_with("backward") ? backward : forward) += call.flops;
  }
  CHECK(names == std::vector<std::string>{"input", "conv1 forward", "conv2 forward", "fc1 forward",
                                          "fc2 forward", "loss", "fc2 backward", "fc1 backward",
                                          "conv2 backward", "conv1 backward"});
  CHECK(forward == 3 * 4500720.0);
  CHECK(backward == 3 * 8758080.0);
  CHECK(calls[1].flops == 3 * plan.rows[0].forward_flops);
  // A second run of the same calls overwrites the gradients of the first.
  NetRunner other(*backend, plan, start_params(plan), batch);
  const std::vector<ExecutorCall> alone =
      other.executor().train_calls(other.buffers(), other.batch());
  for (const ExecutorCall& call : alone) call.run();
  for (const ExecutorCall& call : alone) call.run();
  CHECK(same_bits(other.grads(), whole.grads));
}

}  // namespace
}  // namespace dpt::testing
