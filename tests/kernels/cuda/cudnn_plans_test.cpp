// cuDNN's plans, run on a GPU, against the double-precision reference. (In an emulated build, a
// plan of the emulation replaces them.)
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <optional>

#include "kernels/common/bf16.h"
#include "kernels/cuda/conv/conv_plan.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

struct Kind {
  const char* name;
  DType type;
  bool tf32;
  double factors,
      stored;  ///< error bounds of arithmetic and storing, relative to the largest result
};
// Rounding or truncating factors to tf32 loses up to 2^-10. With bf16 tensors, the bias and the
// gradient of the weights pass through bf16.
constexpr Kind kKinds[] = {{"fp32", DType::f32, false, 5e-6, 0},
                           {"tf32", DType::f32, true, 0x1p-9, 0},
                           {"bf16", DType::bf16, false, 0x1p-8, 0x1p-8}};

/// Runs a plan on tensors of T and returns its output.
template <class T>
std::vector<float> run(const GPU& gpu, const ConvProblem& p, ConvPlan& plan,
                       const std::vector<float>& x, const std::vector<float>& y,
                       const std::vector<float>& weight, const std::vector<float>& bias,
                       GradWrite write = GradWrite::overwrite) {
  const GpuArray<T> xs(gpu, as<T>(x)), ys(gpu, as<T>(y)), weights(gpu, as<T>(weight));
  const GpuArray<float> biases(gpu, bias), dweight(gpu, weight);
  const GpuArray<Bf16> biases16(gpu, as<Bf16>(bias));
  ConvArgs args;
  args.x = xs.get();
  args.y = ys.get();
  args.weight = weights.get();
  args.bias = p.bias ? biases.get() : nullptr;
  args.bias16 = p.bias && p.type == DType::bf16 ? biases16.get() : nullptr;
  args.dweight = dweight.get();
  args.write = write;
  // NaN in scratch reaches the results if a plan reads what it has not written.
  const GpuArray<float> scratch(gpu, std::vector<float>(plan.scratch_bytes() / sizeof(float) + 1,
                                                        std::numeric_limits<float>::quiet_NaN()));
  args.scratch = scratch.get();
  plan.run(args);
  if (p.pass == Pass::forward) return floats(ys.values());
  if (p.pass == Pass::backward_data) return floats(xs.values());
  return dweight.values();
}

template <class T>
void check_plans(const GPU& gpu, const Conv2dDesc& d, const Kind& kind, Pass pass) {
  Conv2dDesc typed = d;
  typed.type = kind.type;
  typed.tf32 = kind.tf32;
  ConvProblem p = conv_problem(typed, pass);
  p.bias = p.bias && pass == Pass::forward;
  const auto values = [](std::int64_t count, std::uint64_t seed) {
    return floats(as<T>(random_values(count, seed)));
  };
  const auto x = values(d.batch * d.in.elements(), 1), weight = values(weight_count(d), 2),
             dy = values(d.batch * d.conv_out.elements(), 4);
  const auto bias = random_values(d.bias ? d.conv_out.c : 0, 3);
  Conv2dDesc plain = d;
  plain.relu = false;
  const auto gradients = reference::conv2d_backward(plain, to_double(x), to_double(weight),
                                                    to_double(bias), to_double(dy));
  auto plans = make_cudnn_plans(gpu.context(), p, 2);
  CHECK(!plans.empty());
  const std::optional<ConvProblem> padded = padded_problem(p);
  if (padded) {
    auto inner = make_cudnn_plans(gpu.context(), *padded, 1);
    REQUIRE(!inner.empty());
    plans.push_back(make_padded_conv(gpu.context(), p, std::move(inner.front())));
  }
  for (const auto& plan : plans) {
    const std::string name = fmt::format("{} {} pass {} by {}", text(d), kind.name,
                                         static_cast<int>(pass), plan->name());
    INFO(name);
    const std::vector<float> got = run<T>(gpu, p, *plan, x, dy, weight, bias);
    CHECK(run<T>(gpu, p, *plan, x, dy, weight, bias) == got);
    if (!plan->name().starts_with(kPaddedPrefix)) {
      const auto named = make_cudnn_plan(gpu.context(), p, plan->name());
      REQUIRE(named);
      CHECK(named->name() == plan->name());
      CHECK(run<T>(gpu, p, *named, x, dy, weight, bias) == got);
    }
    if (pass == Pass::forward) {
      const auto y = reference::conv2d(d, to_double(x), to_double(weight), to_double(bias));
      check_close("y", got, y, kind.factors + kind.stored);
    } else if (pass == Pass::backward_data) {
      check_close("dx", got, gradients.x, kind.factors + kind.stored);
    } else {
      check_close("dweight", got, gradients.weight, kind.factors);
      // The gradient buffer starts with the values of the weights.
      std::vector<double> sum = gradients.weight;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(weight[i]);
      check_close("added dweight", run<T>(gpu, p, *plan, x, dy, weight, bias, GradWrite::add), sum,
                  kind.factors);
    }
  }
}

TEST_CASE("cuDNN's plans agree with the reference, alone and by name, with the same bits again") {
  if (!have_gpu()) return;
  const GPU gpu;
  std::vector<Conv2dDesc> cases = conv_cases();
  // The first convolution of a network for colour images. Its input is padded.
  cases.push_back(conv_case(2, {15, 14, 3}, 16, {7, 7}, {2, 2}, {3, 3}));
  for (Conv2dDesc d : cases) {
    for (const Kind& kind : kKinds) {
      for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights}) {
        for (int fusion = 0; fusion < (pass == Pass::forward ? 4 : 1); ++fusion) {
          d.bias = (fusion & 1) != 0;
          d.relu = (fusion & 2) != 0;
          if (kind.type == DType::bf16) {
            check_plans<Bf16>(gpu, d, kind, pass);
          } else {
            check_plans<float>(gpu, d, kind, pass);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace dpt::testing
