// The optimizers' formulas, once for every backend: one function per element, PyTorch's order of
// operations (torch.optim.SGD, Adam, AdamW). `T` is float, or a pack of floats with arithmetic
// operators and square_root/larger next to it. No term may be fused into a multiply-add by hand,
// and the host compiler does not fuse either (-ffp-contract=off), so every instruction set gives
// the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/common/host_device.h"

namespace dpt {

DPT_HOST_DEVICE inline float square_root(float x) {
  return sqrtf(x);
}
/// Larger of the two; a NaN in either is kept, as torch.maximum does.
DPT_HOST_DEVICE inline float larger(float a, float b) {
  return a != a || a > b ? a : b;
}

DPT_HOST_DEVICE inline bool is_finite(float x) {
  return x - x == 0;
}

/// What becomes of the update of this step, before anything is written: a function of numbers that
/// are the same on every rank.
DPT_HOST_DEVICE inline UpdateOutcome decide_update(const StepScalars& now,
                                                   const StepMetrics& metrics,
                                                   const UpdateGuard& guard) {
  // The guard may be set by this very step while some threads still ask.
  const std::int64_t bad_step = guard.bad_step;
  if (bad_step != 0 && bad_step < now.step) return UpdateOutcome::withheld;
  if (!is_finite(metrics.loss_sum) || now.finite == 0) return UpdateOutcome::refused;
  return UpdateOutcome::applied;
}

/// Leaves an outcome other than `applied` where the host and the next steps find it. Threads that
/// call it for one step write the same values.
DPT_HOST_DEVICE inline void report_outcome(UpdateOutcome outcome, const StepScalars& now,
                                           StepMetrics& metrics, UpdateGuard& guard) {
  metrics.outcome = static_cast<float>(outcome);
  metrics.bad_norm = now.grad_norm;
  if (outcome != UpdateOutcome::withheld) guard.bad_step = now.step;
}

/// grad_norm, clip and finite of `s` from the sum of all squares, as
/// torch.nn.utils.clip_grad_norm_: clip = min(1, max_norm / (norm + 1e-6)), and 1 when max_norm is
/// 0.
DPT_HOST_DEVICE inline void set_norm_and_clip(StepScalars& s, double sum_of_squares) {
  s.grad_norm = static_cast<float>(sqrt(sum_of_squares));
  s.clip = 1;
  // The squares of floats do not overflow a double: the sum is finite where every gradient is.
  s.finite = sum_of_squares - sum_of_squares == 0 ? 1.0F : 0.0F;
  if (s.max_norm > 0) {
    // A NaN norm stays one, as it does in PyTorch: the step then shows what went wrong.
    const float factor = s.max_norm / (s.grad_norm + 1e-6F);
    s.clip = factor > 1 ? 1.0F : factor;
  }
}

/// What is constant over one step of SGD.
struct SgdStep {
  float gradient_scale = 1;  ///< clip factor, negative to maximize
  float lr = 0;
  float weight_decay = 0;
  float momentum = 0;
  float keep = 0;  ///< factor of the old momentum buffer: momentum, 0 at the first step
  float gain = 1;  ///< factor of the gradient in the new buffer: 1 - dampening, 1 at the first step
  bool nesterov = false;
};

/// What is constant over one step of Adam or AdamW.
struct AdamStep {
  float gradient_scale = 1;  ///< clip factor, negative to maximize
  float shrink = 1;          ///< AdamW: 1 - lr * weight_decay
  float weight_decay = 0;    ///< Adam: added to the gradient
  float one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0, eps = 0;
  float step_size = 0;
  float inverse_sqrt_bias2 = 1;
};

DPT_HOST_DEVICE inline SgdStep sgd_step(const OptimizerDesc& desc, const StepScalars& now) {
  SgdStep step;
  step.gradient_scale = desc.maximize ? -now.clip : now.clip;
  step.lr = now.lr;
  step.weight_decay = static_cast<float>(desc.weight_decay);
  step.momentum = desc.momentum;
  const bool first = now.first_step != 0;
  step.keep = first ? 0.0F : desc.momentum;
  step.gain = first ? 1.0F : static_cast<float>(1.0 - static_cast<double>(desc.dampening));
  step.nesterov = desc.nesterov;
  return step;
}

DPT_HOST_DEVICE inline AdamStep adam_step(const OptimizerDesc& desc, const StepScalars& now) {
  AdamStep step;
  step.gradient_scale = desc.maximize ? -now.clip : now.clip;
  if (desc.kind == OptimizerKind::adamw) {
    step.shrink = static_cast<float>(1.0 - static_cast<double>(now.lr) * desc.weight_decay);
  } else {
    step.weight_decay = static_cast<float>(desc.weight_decay);
  }
  step.one_minus_beta1 = static_cast<float>(1.0 - desc.beta1);
  step.beta2 = static_cast<float>(desc.beta2);
  step.one_minus_beta2 = static_cast<float>(1.0 - desc.beta2);
  step.eps = static_cast<float>(desc.eps);
  step.step_size = now.step_size;
  step.inverse_sqrt_bias2 = now.inverse_sqrt_bias2;
  return step;
}

/// SGD without momentum.
template <class T>
DPT_HOST_DEVICE inline void sgd_update(const SgdStep& step, T& param, T grad) {
  grad = grad * step.gradient_scale + param * step.weight_decay;
  param = param - grad * step.lr;
}

/// SGD with momentum. At the first step the buffer becomes the gradient, whatever it held.
template <class T>
DPT_HOST_DEVICE inline void sgd_momentum_update(const SgdStep& step, bool first, T& param, T grad,
                                                T& buffer) {
  grad = grad * step.gradient_scale + param * step.weight_decay;
  buffer = first ? grad : buffer * step.keep + grad * step.gain;
  const T direction = step.nesterov ? grad + buffer * step.momentum : buffer;
  param = param - direction * step.lr;
}

/// Adam and AdamW. `max_square` is the largest second moment so far, or null without amsgrad.
template <class T>
DPT_HOST_DEVICE inline void adam_update(const AdamStep& step, T& param, T grad, T& mean, T& square,
                                        T* max_square) {
  grad = grad * step.gradient_scale;
  param = param * step.shrink;
  grad = grad + param * step.weight_decay;
  mean = mean + (grad - mean) * step.one_minus_beta1;
  square = square * step.beta2 + grad * grad * step.one_minus_beta2;
  T second = square;
  if (max_square) {
    *max_square = larger(*max_square, square);
    second = *max_square;
  }
  const T denominator = square_root(second) * step.inverse_sqrt_bias2 + step.eps;
  param = param - mean / denominator * step.step_size;
}

}  // namespace dpt
