// Replaces cuDNN in an emulated build. There is one plan for every problem: plain loops, as easy to
// check as the reference. They compute in double, so that the only errors come from rounding the
// factors and the result.
#include <algorithm>
#include <vector>

#include "emulation/control.h"
#include "kernels/base/error.h"
#include "kernels/common/bf16.h"
#include "kernels/cuda/conv/conv_plan.h"
#include "kernels/cuda/runtime/launch.h"

namespace dpt {
namespace {

/// Rounds to tf32 as for the inputs of tensor cores: 10 bits of mantissa, ties away from zero.
struct Tf32 {
  float value;
};
double factor_of(Tf32 number) {
  const auto bits = __builtin_bit_cast(std::uint32_t, number.value);
  if ((bits & 0x7F800000U) == 0x7F800000U) return number.value;
  return __builtin_bit_cast(float, (bits + 0x1000U) & ~0x1FFFU);
}
double factor_of(float number) {
  return number;
}
double factor_of(Bf16 number) {
  return to_float(number);
}

/// Calls use(x_at, y_at, tap) for every position (p, q) of sample n and every tap (r, s) of the
/// kernel that does not fall on padding. x_at and y_at are the offsets of the first channel in x
/// and y; tap is r * S + s.
template <class Use>
void for_taps(const ConvProblem& d, std::int64_t n, std::int64_t first_tap, std::int64_t end_tap,
              const Use& use) {
  for (std::int64_t p = 0; p < d.out.h; ++p) {
    for (std::int64_t q = 0; q < d.out.w; ++q) {
      for (std::int64_t tap = first_tap; tap < end_tap; ++tap) {
        const std::int64_t h = p * d.stride.h - d.padding.h + tap / d.kernel.w * d.dilation.h;
        const std::int64_t w = q * d.stride.w - d.padding.w + tap % d.kernel.w * d.dilation.w;
        if (h < 0 || w < 0 || h >= d.in.h || w >= d.in.w) continue;
        use(((n * d.in.h + h) * d.in.w + w) * d.in.c, ((n * d.out.h + p) * d.out.w + q) * d.out.c,
            tap);
      }
    }
  }
}

/// Returns the weight (K,R,S,C/groups) as (group,R,S,C/groups,K/groups), so that the inner loops
/// run over adjacent numbers.
template <class Factor>
std::vector<double> transposed(const ConvProblem& d, const Factor* weight) {
  const std::int64_t taps = d.kernel.h * d.kernel.w;
  const std::int64_t group_in = d.in.c / d.groups, group_out = d.out.c / d.groups;
  std::vector<double> result(static_cast<std::size_t>(d.out.c * taps * group_in));
  for (std::int64_t k = 0; k < d.out.c; ++k) {
    const std::int64_t first = k / group_out * taps * group_in * group_out + k % group_out;
    for (std::int64_t i = 0; i < taps * group_in; ++i) {
      result[first + i * group_out] = factor_of(weight[k * taps * group_in + i]);
    }
  }
  return result;
}

/// Runs with one block per sample.
template <class Factor, class T>
__global__ void conv_forward(ConvProblem d, const Factor* x, const Factor* weight, const T* bias,
                             T* y) {
  const std::int64_t group_in = d.in.c / d.groups, group_out = d.out.c / d.groups;
  const std::int64_t taps = d.kernel.h * d.kernel.w, positions = d.out.h * d.out.w;
  const std::int64_t n = blockIdx.x, first = n * positions * d.out.c;
  const std::vector<double> factors = transposed(d, weight);
  std::vector<double> sums(static_cast<std::size_t>(positions * d.out.c));
  for_taps(d, n, 0, taps, [&](std::int64_t x_at, std::int64_t y_at, std::int64_t tap) {
    for (std::int64_t i = 0; i < d.in.c; ++i) {
      const std::int64_t group = i / group_in;
      const double factor = factor_of(x[x_at + i]);
      const double* row = &factors[((group * taps + tap) * group_in + i % group_in) * group_out];
      double* sum = &sums[y_at - first + group * group_out];
      for (std::int64_t k = 0; k < group_out; ++k) sum[k] += factor * row[k];
    }
  });
  for (std::int64_t i = 0; i < positions * d.out.c; ++i) {
    double value = sums[i];
    if (d.bias) value += static_cast<double>(to_float(bias[i % d.out.c]));
    // A library may turn NaN into 0 here.
    if (d.relu && !(value > 0)) value = 0;
    store(y[first + i], static_cast<float>(value));
  }
}

/// Runs with one block per sample.
template <class Factor, class T>
__global__ void conv_backward_data(ConvProblem d, T* dx, const Factor* weight, const Factor* dy) {
  const std::int64_t group_in = d.in.c / d.groups, group_out = d.out.c / d.groups;
  const std::int64_t taps = d.kernel.h * d.kernel.w;
  const std::int64_t n = blockIdx.x, count = d.in.elements(), first = n * count;
  std::vector<double> sums(static_cast<std::size_t>(count));
  for_taps(d, n, 0, taps, [&](std::int64_t x_at, std::int64_t y_at, std::int64_t tap) {
    for (std::int64_t k = 0; k < d.out.c; ++k) {
      const double factor = factor_of(dy[y_at + k]);
      const Factor* row = weight + (k * taps + tap) * group_in;
      double* sum = &sums[x_at - first + k / group_out * group_in];
      for (std::int64_t i = 0; i < group_in; ++i) sum[i] += factor * factor_of(row[i]);
    }
  });
  for (std::int64_t i = 0; i < count; ++i) {
    store(dx[first + i], static_cast<float>(sums[i]));
  }
}

/// Runs with one block per tap of the kernel.
template <class Factor>
__global__ void conv_backward_weights(ConvProblem d, const Factor* x, const Factor* dy,
                                      float* dweight, bool add) {
  const std::int64_t group_in = d.in.c / d.groups, group_out = d.out.c / d.groups;
  const std::int64_t taps = d.kernel.h * d.kernel.w, tap = blockIdx.x;
  std::vector<double> sums(static_cast<std::size_t>(d.in.c * group_out));
  for (std::int64_t n = 0; n < d.batch; ++n) {
    for_taps(d, n, tap, tap + 1, [&](std::int64_t x_at, std::int64_t y_at, std::int64_t) {
      for (std::int64_t i = 0; i < d.in.c; ++i) {
        const double factor = factor_of(x[x_at + i]);
        const Factor* row = dy + y_at + i / group_in * group_out;
        double* sum = &sums[i * group_out];
        for (std::int64_t k = 0; k < group_out; ++k) sum[k] += factor * factor_of(row[k]);
      }
    });
  }
  for (std::int64_t i = 0; i < d.in.c; ++i) {
    for (std::int64_t k = 0; k < group_out; ++k) {
      const std::int64_t out = i / group_in * group_out + k;
      float& to = dweight[(out * taps + tap) * group_in + i % group_in];
      const auto sum = static_cast<float>(sums[i * group_out + k]);
      to = add ? to + sum : sum;
    }
  }
}

class EmulatedPlan final : public ConvPlan {
 public:
  EmulatedPlan(const CudaContext& context, const ConvProblem& problem)
      : context_(context), problem_(problem) {}

  void run(const ConvArgs& args) override {
    if (emulation::cudnn() == emulation::Cudnn::fails_to_run) {
      fail(ErrorKind::device, "{}: {} failed: told to", context_.name, name());
    }
    if (problem_.type == DType::bf16) {
      run<Bf16, Bf16>(args);
    } else if (problem_.tf32) {
      run<Tf32, float>(args);
    } else {
      run<float, float>(args);
    }
  }
  std::string name() const override { return "emulated:direct"; }
  /// Returns true if pixels fill multiples of 16 bytes, or if a padded copy fits into the
  /// workspace.
  bool uses_tensor_cores() const override {
    const auto pixels = static_cast<std::size_t>(problem_.batch * problem_.in.h * problem_.in.w);
    const auto channels = static_cast<std::size_t>(problem_.in.c);
    return (problem_.type == DType::bf16 || problem_.tf32) &&
           (channels * size_of(problem_.type) % 16 == 0 || pixels * 16 <= context_.workspace_bytes);
  }

 private:
  template <class Factor, class T>
  void run(const ConvArgs& args) {
    const auto* weight = static_cast<const Factor*>(args.weight);
    const auto samples = static_cast<unsigned>(problem_.batch);
    // cuDNN takes the bias in the tensors' type.
    const auto* bias = static_cast<const T*>(
        problem_.type == DType::bf16 ? args.bias16 : static_cast<const void*>(args.bias));
    switch (problem_.pass) {
      case Pass::forward:
        launch(conv_forward<Factor, T>, samples, 1, 0, context_.stream, problem_,
               static_cast<const Factor*>(args.x), weight, bias, static_cast<T*>(args.y));
        break;
      case Pass::backward_data:
        launch(conv_backward_data<Factor, T>, samples, 1, 0, context_.stream, problem_,
               static_cast<T*>(args.x), weight, static_cast<const Factor*>(args.y));
        break;
      case Pass::backward_weights:
        launch(conv_backward_weights<Factor>,
               static_cast<unsigned>(problem_.kernel.h * problem_.kernel.w), 1, 0, context_.stream,
               problem_, static_cast<const Factor*>(args.x), static_cast<const Factor*>(args.y),
               args.dweight, args.write == GradWrite::add);
        break;
    }
  }

  const CudaContext& context_;
  ConvProblem problem_;
};

/// Checks, as the real plans do, that the library and its handle exist.
void check_library(const CudaContext& context) {
  if (emulation::cudnn() == emulation::Cudnn::absent) {
    fail(ErrorKind::device, "cuDNN cannot be used: told to be absent");
  }
  if (emulation::cudnn() == emulation::Cudnn::fails_to_plan) {
    fail(ErrorKind::device, "{}: cudnnCreate failed: told to", context.name);
  }
}

}  // namespace

std::vector<std::unique_ptr<ConvPlan>> make_cudnn_plans(const CudaContext& context,
                                                        const ConvProblem& problem, int most) {
  check_library(context);
  std::vector<std::unique_ptr<ConvPlan>> plans;
  if (most > 0) plans.push_back(std::make_unique<EmulatedPlan>(context, problem));
  return plans;
}

std::unique_ptr<ConvPlan> make_cudnn_plan(const CudaContext& context, const ConvProblem& problem,
                                          const std::string& name) {
  auto plan = std::make_unique<EmulatedPlan>(context, problem);
  if (plan->name() == name) check_library(context);
  return plan->name() == name ? std::move(plan) : nullptr;
}

}  // namespace dpt
