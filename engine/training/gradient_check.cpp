#include "engine/training/gradient_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <numeric>
#include <random>

#include "engine/data/split.h"
#include "engine/graph/executor.h"
#include "engine/job/starting_point.h"
#include "engine/training/trainer.h"
#include "kernels/base/divide.h"
#include "kernels/base/error.h"
#include "kernels/base/heartbeat.h"
#include "kernels/base/text.h"
#include "kernels/devices.h"

namespace dpt {
namespace {

constexpr int kWantedDirections = 8, kMaxDirections = 30, kContradictions = 3;
constexpr double kMaxError = 0.1;  // maximum error of a slope that is still meaningful

double root_mean_square(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum / static_cast<double>(std::max<std::size_t>(values.size(), 1)));
}

/// Derivative in one direction, with a bound on its error.
struct Slope {
  double value = 0, error = std::numeric_limits<double>::infinity();
  double noise = 0;  ///< part of the error caused by rounding
};

class TensorCheck {
 public:
  TensorCheck(const CheckedFunction& function, std::int64_t offset, std::int64_t count,
              std::uint64_t seed)
      : function_(function),
        offset_(offset),
        at_(std::span(function.at)
                .subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count))),
        gradient_(std::span(function.gradient)
                      .subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count))),
        moved_(at_.begin(), at_.end()),
        direction_(at_.size()),
        random_(seed) {}

  CheckedTensor run() {
    here_ = function_.value(offset_, at_);
    if (!std::all_of(gradient_.begin(), gradient_.end(),
                     [](float g) { return std::isfinite(g); })) {
      // The loss is finite (check_gradients), so its gradient should be too.
      result_.verdict = GradientVerdict::differs;
      return result_;
    }
    measure_noise();
    int flat = 0;
    int& wrong = result_.contradicting;
    for (int tried = 0; tried < kMaxDirections; ++tried) {
      // One or two contradicting directions may be flukes, so try more.
      if (result_.directions >= kWantedDirections && (wrong == 0 || wrong >= kContradictions)) {
        break;
      }
      if (wrong == 0 && flat >= kWantedDirections && result_.directions == 0) break;
      if (!choose_direction(tried)) continue;
      const double analytic = std::inner_product(
          direction_.begin(), direction_.end(), gradient_.begin(), 0.0,
          [](double sum, double term) { return sum + term; },
          [](float a, float b) { return static_cast<double>(a) * static_cast<double>(b); });
      const Slope slope = measure(analytic);
      const double size = std::max(std::abs(analytic), std::abs(slope.value));
      if (size <= 3 * slope.noise) ++flat;
      if (size == 0 || !(slope.error <= kMaxError * size)) continue;
      const double error = std::abs(analytic - slope.value);
      ++result_.directions;
      result_.worst = std::max(result_.worst, error / size);
      if (error > 3 * slope.error + 0.02 * size) ++wrong;
    }
    function_.value(offset_, at_);
    if (wrong >= kContradictions && 4 * wrong >= result_.directions) {
      result_.verdict = GradientVerdict::differs;
    } else if (result_.directions > 0) {
      result_.verdict = GradientVerdict::agrees;
    } else if (flat >= kWantedDirections) {
      result_.verdict = GradientVerdict::flat;
    }
    return result_;
  }

 private:
  /// Measures how much the value changes although it should not: it moves each element by one unit
  /// in its last place.
  void measure_noise() {
    noise_ = 1e-7 * std::abs(here_);
    for (int probe = 0; probe < 4; ++probe) {
      for (std::size_t i = 0; i < at_.size(); ++i) {
        const float infinity = std::numeric_limits<float>::infinity();
        moved_[i] = std::nextafter(at_[i], random_() % 2 == 0 ? infinity : -infinity);
      }
      noise_ = std::max(noise_, std::abs(function_.value(offset_, moved_) - here_));
    }
  }

  float random_sign() { return random_() % 2 == 0 ? 1.0F : -1.0F; }

  /// Returns false if there is no direction of this kind.
  bool choose_direction(int which) {
    const double size = root_mean_square(gradient_);
    if (which == 0) {  // the steepest: reveals a wrong factor
      if (!(size > 0) || !std::isfinite(size)) return false;
      for (std::size_t i = 0; i < direction_.size(); ++i) {
        direction_[i] = static_cast<float>(static_cast<double>(gradient_[i]) / size);
      }
    } else if (which % 2 == 0) {
      for (float& element : direction_) element = random_sign();
    } else {  // a few elements: reveals an error in some of them
      constexpr std::size_t kElements = 24;
      std::fill(direction_.begin(), direction_.end(), 0.0F);
      for (std::size_t k = 0; k < std::min(kElements, direction_.size()); ++k) {
        direction_[random_() % direction_.size()] = random_sign();
      }
    }
    return true;
  }

  double value_at(double step) {
    for (std::size_t i = 0; i < at_.size(); ++i) {
      moved_[i] = static_cast<float>(static_cast<double>(at_[i]) +
                                     step * static_cast<double>(direction_[i]));
    }
    beat("checking gradients");
    return function_.value(offset_, moved_);
  }

  /// Measures the slope with the smallest steps that rounding errors allow, because small steps
  /// rarely cross a kink.
  Slope measure(double analytic) {
    // Steps are relative to the weights. Weights that start at zero count as having a typical size.
    const double most = 0.05 * std::max(root_mean_square(at_), 0.05);
    // Rounding error of a slope at the smallest step, as a fraction of the analytic slope.
    constexpr double kPart = 0.015;
    const double smallest = std::min(most, 2 * noise_ / (kPart * std::abs(analytic)));
    Slope found;
    double before = 0, last = 0;  // slopes of the two previous steps
    double step = 8 * smallest;
    for (int k = 0; k < 4; ++k, step /= 2) {
      const double above = value_at(step), below = value_at(-step);
      const double slope = (above - below) / (2 * step);
      if (k >= 2) {
        const double bend = (above - here_) / step - (here_ - below) / step;
        const double noise = 2 * noise_ / step;
        const double error =
            std::max(std::abs(slope - last), std::abs(slope - before)) + std::abs(bend) / 2 + noise;
        const double size = std::max(std::abs(analytic), std::abs(slope));
        if (k == 2 || error <= kMaxError * size) found = {slope, error, noise};
      }
      before = last;
      last = slope;
    }
    return found;
  }

  const CheckedFunction& function_;
  const std::int64_t offset_;
  const std::span<const float> at_, gradient_;
  std::vector<float> moved_, direction_;
  std::mt19937_64 random_;
  double here_ = 0, noise_ = 0;
  CheckedTensor result_;
};

/// Returns the starting weights, each moved slightly. If a layer's input were constant, zero
/// weights would put its output exactly on a kink of the next layer.
std::vector<float> moved_start(const Job& job) {
  std::vector<float> params = fresh_start(job).params;
  std::mt19937_64 random(static_cast<std::uint64_t>(job.spec.seed));
  for (const Param& param : job.model.plan.params) {
    if (!param.is_trained()) continue;
    const auto own = std::span(params).subspan(static_cast<std::size_t>(param.offset),
                                               static_cast<std::size_t>(param.count));
    const auto most = static_cast<float>(std::max(0.1 * root_mean_square(own), 0.05));
    std::uniform_real_distribution<float> move(-most, most);
    for (float& value : own) value += move(random);
  }
  return params;
}

/// Refuses batch statistics of few values. They nearly cancel the effect of the layers before them,
/// so the slopes of those layers would be lost in rounding.
void check_statistics(const Plan& plan, std::int64_t samples) {
  constexpr std::int64_t kFewest = 8;
  for (const Node& node : plan.nodes) {
    if (!node.coupling) continue;
    const SampleShape& in = plan.values[node.inputs[0]].shape.shape;
    const std::int64_t pixels = in.h * in.w;
    if (samples * pixels >= kFewest) continue;
    fail(ErrorKind::usage,
         "--samples {}: layer '{}' computes its statistics from {} per channel, but a check "
         "needs at least {}: use --samples {} or more",
         samples, node.name, counted(samples * pixels, "value"), kFewest,
         ceil_div(kFewest, pixels));
  }
}

/// The mean loss of some samples as in a training step: batch normalisation with their statistics,
/// dropout with one fixed draw of masks.
class BatchLoss {
 public:
  BatchLoss(const Job& job, const DeviceName& device, std::int64_t samples)
      : backend_(make_backend(device, job.placement.backend_options)),
        plan_(job.model.plan),
        executor_(*backend_, job.model.plan, job.data.eval_input, job.model.loss, samples, true),
        losses_(static_cast<std::size_t>(samples)) {
    const Split& split = job.data.evaluated_train;
    const DataSource& source = *split.source;
    const auto count = static_cast<std::size_t>(samples);
    const std::size_t bytes =
        static_cast<std::size_t>(source.shape().elements()) * size_of(source.type());
    std::vector<std::byte> pixels(count * bytes);
    std::vector<std::int32_t> labels(count), slots(count);
    const auto width = static_cast<std::size_t>(source.targets().floats());
    std::vector<float> targets(count * width);
    std::vector<std::int64_t> ids(count);
    for (std::size_t k = 0; k < count; ++k) {
      slots[k] = static_cast<std::int32_t>(k);
      ids[k] = split.indices[k * split.indices.size() / count];
      source.read(ids[k], std::span(pixels).subspan(k * bytes, bytes), labels[k]);
      if (width > 0) source.read_targets(ids[k], std::span(targets).subspan(k * width, width));
    }
    StepScalars scalars;
    scalars.step = 1;
    scalars.inverse_count = 1.0F / static_cast<float>(samples);
    // The gradient of a weighted loss is that of the sum.
    scale_ = job.model.loss.is_weighted() ? 1.0 : 1.0 / static_cast<double>(samples);
    batch_ = {filled<std::byte>(pixels), filled<std::int32_t>(labels), filled<std::int32_t>(slots),
              filled<std::int64_t>(ids), filled<StepScalars>({&scalars, 1})};
    if (width > 0) batch_.targets = filled<float>(targets);
    at_ = moved_start(job);
    buffers_.params = filled<float>(at_);
    grad_bytes_ = static_cast<std::size_t>(plan_.grad_floats()) * sizeof(float);
    buffers_.grads = room(grad_bytes_);
    buffers_.arena = room(executor_.arena_bytes());
    buffers_.kept = room(executor_.kept_bytes());
    outputs_.sample_loss = room(count * sizeof(float));
  }

  CheckedFunction function() {
    CheckedFunction function;
    function.at = at_;
    function.gradient.resize(static_cast<std::size_t>(plan_.grad_floats()));
    backend_->zero(buffers_.grads, grad_bytes_);
    executor_.train(buffers_, batch_, GradWrite::overwrite);
    backend_->download(function.gradient.data(), buffers_.grads, grad_bytes_);
    backend_->synchronize();
    function.value = [this](std::int64_t offset, std::span<const float> values) {
      backend_->upload(buffers_.params + static_cast<std::size_t>(offset) * sizeof(float),
                       values.data(), values.size_bytes());
      executor_.evaluate(buffers_, batch_, outputs_);
      backend_->download(losses_.data(), outputs_.sample_loss, losses_.size() * sizeof(float));
      backend_->synchronize();
      return std::accumulate(losses_.begin(), losses_.end(), 0.0) * scale_;
    };
    return function;
  }

 private:
  DevPtr room(std::size_t bytes) {
    return memory_
        .emplace_back(
            backend_->allocate(std::max<std::size_t>(bytes, 1), "a check of the gradients"))
        .ptr();
  }
  template <class T>
  DevPtr filled(std::span<const T> values) {
    const DevPtr to = room(values.size_bytes());
    backend_->upload(to, values.data(), values.size_bytes());
    backend_->synchronize();
    return to;
  }

  std::unique_ptr<Backend> backend_;
  const Plan& plan_;
  std::vector<DeviceMemory> memory_;
  Executor executor_;
  ExecutorBuffers buffers_;
  DeviceBatch batch_;
  EvalOutputs outputs_;
  std::vector<float> at_, losses_;
  std::size_t grad_bytes_ = 0;
  double scale_ = 1;
};

}  // namespace

const char* name_of(GradientVerdict verdict) {
  switch (verdict) {
    case GradientVerdict::agrees:
      return "ok";
    case GradientVerdict::differs:
      return "DIFFERS";
    case GradientVerdict::flat:
      return "zero";
    case GradientVerdict::unclear:
      break;
  }
  return "unclear";
}

CheckedTensor check_gradient(const CheckedFunction& function, std::int64_t offset,
                             std::int64_t count, std::uint64_t seed) {
  return TensorCheck(function, offset, count, seed).run();
}

std::vector<CheckedTensor> check_gradients(
    const Job& job, const DeviceName& device, std::int64_t samples,
    const std::function<void(const CheckedTensor&)>& on_tensor) {
  check_statistics(job.model.plan, samples);
  BatchLoss loss(job, device, samples);
  const CheckedFunction function = loss.function();
  const double value = function.value(0, std::span(function.at).first(0));
  if (!std::isfinite(value)) {
    fail(ErrorKind::diverged,
         "the loss of {} samples near the starting weights is {}: it has no slope to compare with",
         samples, std::isnan(value) ? "nan" : fmt::format("{:g}", value));
  }
  std::vector<CheckedTensor> all;
  for (const Param& param : job.model.plan.params) {
    if (!param.is_trained() || param.is_frozen) continue;
    CheckedTensor checked =
        check_gradient(function, param.offset, param.count,
                       static_cast<std::uint64_t>(job.spec.seed) * 1000 + all.size());
    checked.layer = job.model.plan.nodes[param.node].name;
    checked.parameter = param.name;
    if (on_tensor) on_tensor(checked);
    all.push_back(std::move(checked));
  }
  return all;
}

}  // namespace dpt
