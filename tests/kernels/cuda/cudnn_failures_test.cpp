// Convolutions when cuDNN is absent or fails: dpt's own kernels do the work, and a message says so.
// Only the emulation's cuDNN can be made to fail.
#if __has_include("emulation/control.h")
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "emulation/control.h"
#include "kernels/base/error.h"
#include "kernels/cuda/conv/conv_plan.h"
#include "kernels/devices.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace dpt::testing {
namespace {

using emulation::Cudnn;

/// Sets the behaviour of the emulated cuDNN for a scope.
struct Told {
  explicit Told(Cudnn cudnn) { emulation::set_cudnn(cudnn); }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;
  ~Told() { emulation::set_cudnn(Cudnn::works); }
};

/// Returns a problem that the fixed rule assigns to cuDNN, small enough to be timed here.
ConvProblem grouped(Pass pass) {
  ConvProblem p;
  p.pass = pass;
  p.batch = 2;
  p.in = {6, 6, 8};
  p.kernel = {3, 3};
  p.stride = p.dilation = {1, 1};
  p.padding = {0, 0};
  p.out = conv_shape(p.in, 8, p.kernel, p.stride, p.padding, p.dilation);
  p.groups = 2;
  return p;
}

/// Returns the number of plans in the file, for all machines.
std::size_t kept(const std::string& file) {
  std::ifstream in(file);
  const auto all = nlohmann::json::parse(in, nullptr, false);
  std::size_t count = 0;
  if (!all.is_object()) return 0;
  for (const auto& machine : all["machines"]) count += machine.size();
  return count;
}

TEST_CASE("without cuDNN our own kernels are taken, say why, and nothing is kept for later") {
  const TempDir dir;
  BackendOptions options;
  options.plan_cache = dir.file("plans.json");
  for (const bool timed : {true, false}) {
    const GPU gpu(timed ? options : BackendOptions());
    for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights}) {
      CAPTURE(timed);
      CAPTURE(static_cast<int>(pass));
      const ConvProblem p = grouped(pass);
      for (const auto& [cudnn, why] :
           {std::pair{Cudnn::absent, "cuDNN cannot be used: told to be absent"},
            std::pair{Cudnn::fails_to_plan, "cuda:0: cudnnCreate failed: told to"}}) {
        const Told told(cudnn);
        const std::string name = choose_conv_plan(gpu.context(), p)->described();
        INFO(name);
        CHECK(name.find("own:") == 0);
        CHECK(contains(name, why));
        CHECK(kept(options.plan_cache) == 0);
      }
    }
  }
  // Once cuDNN works again, the candidates are timed.
  const std::string name =
      choose_conv_plan(GPU(options).context(), grouped(Pass::forward))->described();
  CHECK(!contains(name, "told"));
  CHECK(kept(options.plan_cache) == 1);
}

TEST_CASE("a kept choice that cuDNN no longer offers is not a failure") {
  const TempDir dir;
  BackendOptions options;
  options.plan_cache = dir.file("plans.json");
  const ConvProblem p = grouped(Pass::forward);
  choose_conv_plan(GPU(options).context(), p);
  std::ifstream in(options.plan_cache);
  auto all = nlohmann::json::parse(in);
  for (auto& machine : all["machines"]) machine[p.key()] = "emulated:direct";
  options.plan_cache = dir.file("cudnn.json");
  std::ofstream(options.plan_cache) << all.dump();
  CHECK(choose_conv_plan(GPU(options).context(), p)->described() == "emulated:direct");
  options.plan_cache = dir.file("again.json");
  std::ofstream(options.plan_cache) << all.dump();
  const Told told(Cudnn::fails_to_plan);
  const std::string name = choose_conv_plan(GPU(options).context(), p)->described();
  CHECK(name.find("own:") == 0);
  CHECK(contains(name, "cudnnCreate failed"));
}

TEST_CASE("a plan that fails when it is first run is not a candidate") {
  const TempDir dir;
  BackendOptions options;
  options.plan_cache = dir.file("plans.json");
  const Told told(Cudnn::fails_to_run);
  const GPU gpu(options);
  const std::string name = choose_conv_plan(gpu.context(), grouped(Pass::forward))->described();
  INFO(name);
  CHECK(name.find("own:") == 0);
  CHECK(contains(name, "emulated:direct failed: told to"));
  CHECK(kept(options.plan_cache) == 0);
}

TEST_CASE("a GPU that is lost while candidates are timed ends the choice") {
  const TempDir dir;
  BackendOptions options;
  options.plan_cache = dir.file("plans.json");
  {
    const GPU gpu(options);
    emulation::fail("kernel:3:cudaErrorIllegalAddress");
    CHECK_THROWS_AS(choose_conv_plan(gpu.context(), grouped(Pass::forward)), Error);
    emulation::clear_failures();
  }
  emulation::set_devices(2);
  CHECK(kept(options.plan_cache) == 0);
}

TEST_CASE("convolutions of LeNet's size run with timed choices where cuDNN is absent") {
  const TempDir dir;
  const Told told(Cudnn::absent);
  BackendOptions options;
  options.plan_cache = dir.file("plans.json");
  const auto backend = make_backend(parse_device("cuda:0"), options);
  Conv2dDesc d = conv_case(2, {13, 13, 20}, 50, {5, 5});
  d.relu = true;
  const auto op = backend->make(d);
  INFO(op->implementation());
  CHECK(contains(op->implementation(), "told to be absent"));
  const std::vector<float> x = random_values(d.batch * d.in.elements(), 1),
                           weight = random_values(weight_count(d), 2),
                           bias = random_values(d.conv_out.c, 3);
  OpRunner runner(*backend, *op, x, weight, bias, d.batch * d.out.elements());
  check_close("y", runner.forward(),
              reference::conv2d(d, to_double(x), to_double(weight), to_double(bias)));
}

}  // namespace
}  // namespace dpt::testing
#endif
