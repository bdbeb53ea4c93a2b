#include "engine/self_check/operation_run.h"

#include <algorithm>

#include "kernels/common/bf16.h"

namespace dpt {
namespace {

using reference::Derivatives;
using reference::Maths;
using reference::Params;
using reference::Values;

constexpr std::size_t kGuardBytes = 256;
constexpr std::array<std::byte, kGuardBytes> kGuard = [] {
  std::array<std::byte, kGuardBytes> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>(0xA5 ^ i);
  return all;
}();

/// Number of bytes that one upload fills with NaN, at most.
constexpr std::size_t kNaNBytes = 1 << 20;

}  // namespace

GuardedArray::GuardedArray(Backend& backend, std::size_t elements, DType type)
    : backend_(&backend),
      type_(type),
      bytes_(elements * size_of(type)),
      memory_(backend.allocate(bytes_ + kGuard.size(), "the self check")) {
  backend.zero(memory_.ptr(), bytes_);
  backend.upload(memory_.ptr() + bytes_, kGuard.data(), kGuard.size());
}

template <class T>
void GuardedArray::set_as(std::span<const double> values, std::size_t at) {
  if (values.empty()) return;
  std::vector<T> stored(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) store(stored[i], static_cast<float>(values[i]));
  backend_->upload(ptr() + at * sizeof(T), stored.data(), stored.size() * sizeof(T));
  backend_->synchronize();
}

void GuardedArray::set(std::span<const double> values, std::size_t at) {
  type_ == DType::bf16 ? set_as<Bf16>(values, at) : set_as<float>(values, at);
}

void GuardedArray::get(std::size_t at, std::span<float> values) const {
  if (values.empty()) return;
  const bool is_bf16 = type_ == DType::bf16;
  std::vector<Bf16> stored(is_bf16 ? values.size() : 0);
  void* host = is_bf16 ? static_cast<void*>(stored.data()) : values.data();
  backend_->download(host, ptr() + at * size_of(type_), values.size() * size_of(type_));
  backend_->synchronize();
  for (std::size_t i = 0; i < stored.size(); ++i) values[i] = to_float(stored[i]);
}

bool GuardedArray::is_guarded() const {
  std::array<std::byte, kGuardBytes> now;
  backend_->download(now.data(), ptr() + bytes_, now.size());
  backend_->synchronize();
  return now == kGuard;
}

OperationRun::OperationRun(Backend& backend, const OpDesc& desc, const Maths& maths,
                           std::int64_t live, std::int64_t batch)
    : backend_(backend),
      maths_(maths),
      live_(static_cast<std::size_t>(live)),
      batch_(static_cast<std::size_t>(batch)),
      type_(type_of(desc)),
      names_(param_names(desc)),
      op_(backend.make(desc)),
      y_(on_device(maths.y)),
      dy_(on_device(maths.y)),
      saved_(backend, op_->saved_bytes() / sizeof(float) + 1, DType::f32),
      scratch_(backend, op_->scratch_bytes() / sizeof(float) + 1, DType::f32),
      ids_(backend, 2 * live_, DType::i32),
      step_(backend, 2, DType::i32) {
  for (std::size_t k = 0; k < maths.inputs; ++k) {
    x_.push_back(on_device(maths.input(k)));
    if (k == 0 || op_->separate_gradients()) dx_.push_back(on_device(maths.input(k)));
  }
  for (const std::size_t count : maths.params) {
    weights_.emplace_back(backend, count, DType::f32);
    halves_.emplace_back(backend, type_ == DType::bf16 ? count : 0, DType::bf16);
    gradients_.emplace_back(backend, count, DType::f32);
  }
  std::vector<std::int64_t> ids;
  for (std::size_t k = 0; k < live_; ++k) ids.push_back(static_cast<std::int64_t>(k));
  backend.upload(ids_.ptr(), ids.data(), ids.size() * sizeof ids[0]);
  backend.synchronize();
  step_.zero();
}

void OperationRun::set(const Values& x, const Params& params) {
  std::size_t at = 0;
  for (std::size_t k = 0; k < x_.size(); ++k) {
    set_samples(x_[k], std::span(x).subspan(at, maths_.input(k)));
    at += maths_.input(k);
  }
  for (std::size_t k = 0; k < weights_.size(); ++k) {
    weights_[k].set(params[k]);
    if (type_ == DType::bf16) halves_[k].set(params[k]);
  }
}

std::vector<NamedResult> OperationRun::run(const Values& dy, RunVariant variant,
                                           bool has_backward) {
  std::vector<NamedResult> results;
  OpArgs args = arguments();
  const bool in_place = variant == RunVariant::in_place;
  const bool over_x = in_place && !(has_backward && op_->backward_needs_x());
  GuardedArray& y = over_x ? x_[0] : y_;
  args.y = y.ptr();
  if (!over_x) forget_samples(y_);
  forget_start(saved_);
  forget_start(scratch_);
  if (op_->coupled_channels() > 0) op_->forward_statistics(args);
  op_->forward(args);
  results.push_back({"output", samples_of(y, maths_.y), Pass::forward});
  if (!has_backward) return results;
  set_samples(dy_, dy);
  if (variant == RunVariant::in_parts) args.dy_parts = set_parts(dy);
  if (in_place) args.dx = dy_.ptr();
  for (GuardedArray& each : dx_) forget_samples(each);
  if (variant == RunVariant::adds) {
    args.write = GradWrite::add;
  } else {
    for (GuardedArray& each : gradients_) forget(each.ptr(), each.bytes());
  }
  forget_start(scratch_);
  if (!op_->backward_needs_x()) args.x = {};
  if (!op_->backward_needs_y()) args.y = {};
  if (op_->coupled_channels() > 0) op_->backward_statistics(args);
  op_->backward(args);
  if (maths_.input_gradient) {
    std::size_t all = 0;
    for (std::size_t k = 0; k < dx_.size(); ++k) all += maths_.input(k);
    std::vector<float> dx(all);
    std::span<float> rest(dx);
    for (std::size_t k = 0; k < dx_.size(); ++k) {
      get_samples(in_place ? dy_ : dx_[k], rest.first(maths_.input(k)));
      rest = rest.subspan(maths_.input(k));
    }
    results.push_back({"gradient of the input", std::move(dx), Pass::backward_data});
  }
  for (std::size_t k = 0; k < gradients_.size(); ++k) {
    if (!has_gradient(k)) continue;
    std::vector<float> gradient(maths_.params[k]);
    gradients_[k].get(0, gradient);
    results.push_back(
        {"gradient of " + std::string(names_[k]), std::move(gradient), Pass::backward_weights});
  }
  if (op_->backward_keeps_dy() && !in_place) {
    results.push_back({"gradient of the output, which backward must keep",
                       samples_of(dy_, maths_.y), Pass::backward_data});
  }
  return results;
}

std::vector<Values> OperationRun::expected(Values y, const Values& dy,
                                           std::optional<Derivatives> g) const {
  std::vector<Values> all;
  all.push_back(std::move(y));
  if (!g) return all;
  if (maths_.input_gradient) {
    // Without separate gradients, all inputs have the same gradient.
    if (!op_->separate_gradients()) g->x.resize(maths_.input(0));
    all.push_back(std::move(g->x));
  }
  for (std::size_t k = 0; k < gradients_.size(); ++k) {
    if (has_gradient(k)) all.push_back(std::move(g->params[k]));
  }
  if (op_->backward_keeps_dy()) all.push_back(dy);
  return all;
}

std::string OperationRun::overrun_array() const {
  if (!y_.is_guarded()) return "output";
  if (!dy_.is_guarded()) return "gradient of the output";
  for (const GuardedArray& each : dy_parts_) {
    if (!each.is_guarded()) return "parts of the gradient of the output";
  }
  if (!saved_.is_guarded()) return "memory for backward";
  if (!scratch_.is_guarded()) return "scratch memory";
  for (const GuardedArray& each : dx_) {
    if (!each.is_guarded()) return "gradient of the input";
  }
  for (std::size_t k = 0; k < gradients_.size(); ++k) {
    if (!gradients_[k].is_guarded()) return "gradient of " + std::string(names_[k]);
  }
  return {};
}

void OperationRun::set_samples(GuardedArray& array, std::span<const double> values) {
  if (batch_ != live_) array.zero();
  const std::size_t sample = values.size() / live_;
  const std::size_t first = sample * (live_ - 1);
  if (first > 0) array.set(values.first(first));
  array.set(values.subspan(first), (batch_ - 1) * sample);
}

GradientParts OperationRun::set_parts(const Values& dy) {
  Values first, second, gate;
  for (const double each : dy) {
    const bool passes = each != 0;
    first.push_back(passes ? 2 * each : 1);
    second.push_back(passes ? -each : 2);
    gate.push_back(passes ? 0.5 : 0);
  }
  while (dy_parts_.size() < 2) dy_parts_.push_back(on_device(maths_.y));
  set_samples(dy_, first);
  set_samples(dy_parts_[0], second);
  set_samples(dy_parts_[1], gate);
  return {dy_.ptr(), dy_parts_[0].ptr(), dy_parts_[1].ptr()};
}

void OperationRun::get_samples(const GuardedArray& array, std::span<float> values) const {
  const std::size_t sample = values.size() / live_;
  array.get(0, values.first(sample * (live_ - 1)));
  array.get((batch_ - 1) * sample, values.last(sample));
}

std::vector<float> OperationRun::samples_of(const GuardedArray& array, std::size_t count) const {
  std::vector<float> values(count);
  get_samples(array, values);
  return values;
}

void OperationRun::forget(DevPtr at, std::size_t bytes) {
  static const std::vector<std::byte> kNaN(kNaNBytes, std::byte{0xFF});
  for (std::size_t done = 0; done < bytes; done += kNaN.size()) {
    backend_.upload(at + done, kNaN.data(), std::min(kNaN.size(), bytes - done));
  }
}

void OperationRun::forget_start(GuardedArray& array) {
  forget(array.ptr(), std::min(array.bytes(), kNaNBytes));
}

void OperationRun::forget_samples(GuardedArray& array) {
  const std::size_t sample = array.bytes() / batch_;
  forget(array.ptr(), sample * (live_ - 1));
  forget(array.ptr() + sample * (batch_ - 1), sample);
}

OpArgs OperationRun::arguments() {
  OpArgs args;
  args.x = x_[0].ptr();
  for (std::size_t k = 1; k < x_.size(); ++k) args.more_x[k - 1] = x_[k].ptr();
  args.y = y_.ptr();
  args.dy = dy_.ptr();
  if (maths_.input_gradient) args.dx = dx_[0].ptr();
  for (std::size_t k = 1; k < dx_.size(); ++k) args.more_dx[k - 1] = dx_[k].ptr();
  for (std::size_t k = 0; k < weights_.size(); ++k) {
    if (maths_.params[k] == 0) continue;
    args.params[k] = {weights_[k].ptr(), type_ == DType::bf16 ? halves_[k].ptr() : DevPtr{},
                      has_gradient(k) ? gradients_[k].ptr() : DevPtr{}};
  }
  args.saved = saved_.ptr();
  args.scratch = scratch_.ptr();
  args.ids = ids_.ptr();
  args.step = step_.ptr();
  if (const auto channels = op_->coupled_channels(); channels > 0) {
    args.values = static_cast<double>(maths_.x) / static_cast<double>(channels);
    args.samples = static_cast<double>(live_);
  }
  return args;
}

}  // namespace dpt
