// Runs the operations of a backend on host vectors, for kernel tests and layer tests.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/base/philox.h"

namespace dpt::testing {

/// Returns values in [-1, 1) that depend on the seed only.
inline std::vector<float> random_values(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = philox::uniform(philox::block(seed, philox::Use::init, i, 0).v[0]) * 2 - 1;
  }
  return values;
}

inline std::vector<double> to_double(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}
inline std::vector<std::vector<double>> to_double(const std::vector<std::vector<float>>& all) {
  std::vector<std::vector<double>> result;
  for (const std::vector<float>& each : all) result.push_back(to_double(each));
  return result;
}

/// Returns the guard bytes that follow a test's memory: NaN as floats, different in every call.
inline std::vector<std::byte> guard_bytes() {
  static std::atomic<std::uint32_t> calls{0};
  const std::vector<std::uint32_t> words(256, 0x7FC00000U + (++calls & 0xFFFFU));
  const auto* bytes = reinterpret_cast<const std::byte*>(words.data());
  return {bytes, bytes + words.size() * sizeof(words[0])};
}

/// Device memory that holds a vector, followed by guard bytes: an operation that writes past the
/// vector is caught, and one that reads there gets NaN.
template <class T>
class OnDevice {
 public:
  OnDevice(Backend& backend, const std::vector<T>& values)
      : backend_(&backend),
        count_(values.size()),
        guard_(values.empty() ? std::vector<std::byte>() : guard_bytes()),
        memory_(backend.allocate(count_ * sizeof(T) + guard_.size(), "a test")) {
    if (count_ > 0) backend.upload(end(), guard_.data(), guard_.size());
    set(values);
  }
  void set(const std::vector<T>& values) {
    if (count_ > 0) backend_->upload(memory_.ptr(), values.data(), count_ * sizeof(T));
    backend_->synchronize();
  }
  std::vector<T> get() const {
    check_guard();
    std::vector<T> values(count_);
    if (count_ > 0) backend_->download(values.data(), memory_.ptr(), count_ * sizeof(T));
    backend_->synchronize();
    return values;
  }
  /// Fails the test if something was written past the vector.
  void check_guard() const {
    if (count_ == 0) return;
    std::vector<std::byte> now(guard_.size());
    backend_->download(now.data(), end(), now.size());
    backend_->synchronize();
    CHECK(std::memcmp(now.data(), guard_.data(), now.size()) == 0);
  }
  DevPtr ptr() const { return memory_.ptr(); }

 private:
  DevPtr end() const { return memory_.ptr() + count_ * sizeof(T); }

  Backend* backend_;
  std::size_t count_;
  std::vector<std::byte> guard_;
  DeviceMemory memory_;
};

/// The results of an operation. The runner checks that the operation left other memory untouched.
struct OpResult {
  std::vector<float> y, dx;
  std::vector<std::vector<float>> gradients;  ///< of the parameters, in order
  std::vector<float> dweight, dbias;  ///< the first two gradients, if the operation has them
};

/// One operation with its memory. Outputs start as NaN, so that an element that is never written is
/// noticed.
class OpRunner {
 public:
  /// `x` holds all inputs, one after another: of equal size, or of the given `sizes`.
  OpRunner(Backend& backend, Op& op, std::vector<float> x, const std::vector<float>& weight,
           const std::vector<float>& bias, std::int64_t y_count, int inputs = 1,
           std::vector<std::size_t> sizes = {})
      : OpRunner(backend, op, std::vector{weight, bias}, std::move(x), y_count, inputs,
                 std::move(sizes)) {}
  OpRunner(Backend& backend, Op& op, const std::vector<std::vector<float>>& params,
           std::vector<float> x, std::int64_t y_count, int inputs = 1,
           std::vector<std::size_t> sizes = {})
      : backend_(backend),
        op_(op),
        inputs_(static_cast<std::size_t>(inputs)),
        sizes_(std::move(sizes)),
        x_host_(x),
        x_(backend, x),
        y_(backend, nan(static_cast<std::size_t>(y_count))),
        dy_(backend, nan(static_cast<std::size_t>(y_count))),
        dx_(backend, nan(op.separate_gradients() ? x.size() : x.size() / inputs_)),
        saved_(backend, nan(op.saved_bytes() / sizeof(float) + 1)),
        scratch_(backend, nan(op.scratch_bytes() / sizeof(float) + 1)) {
    for (const std::vector<float>& each : params) {
      params_.emplace_back(backend, each);
      gradients_.emplace_back(backend, nan(each.size()));
    }
  }

  std::vector<float> forward() {
    if (op_.coupled_channels() > 0) op_.forward_statistics(args());
    op_.forward(args());
    saved_.check_guard();
    scratch_.check_guard();
    return y_.get();
  }

  /// Runs backward with this gradient of y. First overwrites everything that backward does not need
  /// with NaN.
  OpResult backward(const std::vector<float>& dy, GradWrite write = GradWrite::overwrite) {
    dy_.set(dy);
    if (!op_.backward_needs_x()) x_.set(nan(x_host_.size()));
    OpResult result;
    result.y = y_.get();
    if (!op_.backward_needs_y()) y_.set(nan(result.y.size()));
    scratch_.set(nan(op_.scratch_bytes() / sizeof(float) + 1));
    OpArgs a = args();
    a.write = write;
    if (op_.coupled_channels() > 0) op_.backward_statistics(a);
    op_.backward(a);
    saved_.check_guard();
    scratch_.check_guard();
    if (op_.backward_keeps_dy()) CHECK(same_bytes(dy_.get(), dy));
    result.dx = dx_.get();
    for (const OnDevice<float>& each : gradients_) result.gradients.push_back(each.get());
    if (!gradients_.empty()) result.dweight = result.gradients[0];
    if (gradients_.size() > 1) result.dbias = result.gradients[1];
    x_.set(x_host_);
    return result;
  }

  OpArgs args() {
    OpArgs a;
    a.x = x_.ptr();
    std::size_t at = 0;
    for (std::size_t k = 1; k < inputs_; ++k) {
      at += (sizes_.empty() ? x_host_.size() / inputs_ : sizes_[k - 1]) * sizeof(float);
      a.more_x[k - 1] = x_.ptr() + at;
      if (op_.separate_gradients()) a.more_dx[k - 1] = dx_.ptr() + at;
    }
    a.y = y_.ptr();
    for (std::size_t k = 0; k < params_.size(); ++k) {
      a.params[k] = {params_[k].ptr(), {}, gradients_[k].ptr()};
    }
    a.dy = dy_.ptr();
    a.dx = dx_.ptr();
    a.saved = saved_.ptr();
    a.scratch = scratch_.ptr();
    if (ids_) a.ids = ids_->ptr();
    if (step_) a.step = step_->ptr();
    if (op_.coupled_channels() > 0) {
      // This one call processes all samples of the batch.
      a.values = static_cast<double>(x_host_.size()) / static_cast<double>(op_.coupled_channels());
    }
    return a;
  }
  /// Sets the sample numbers and the step, which key the draws of dropout.
  void draw_for(const std::vector<std::int64_t>& ids, std::int64_t step) {
    ids_ = std::make_unique<OnDevice<std::int64_t>>(backend_, ids);
    step_ = std::make_unique<OnDevice<std::int64_t>>(backend_, std::vector{step});
  }
  void set_x(const std::vector<float>& x) { x_.set(x_host_ = x); }
  void set_gradients(const std::vector<float>& dweight, const std::vector<float>& dbias) {
    gradients_.at(0).set(dweight);
    gradients_.at(1).set(dbias);
  }

 private:
  static std::vector<float> nan(std::size_t count) {
    return std::vector<float>(count, std::numeric_limits<float>::quiet_NaN());
  }
  static bool same_bytes(const std::vector<float>& a, const std::vector<float>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  Backend& backend_;
  Op& op_;
  std::unique_ptr<OnDevice<std::int64_t>> ids_, step_;
  std::size_t inputs_;
  std::vector<std::size_t> sizes_;
  std::vector<float> x_host_;
  OnDevice<float> x_, y_, dy_, dx_, saved_, scratch_;
  std::vector<OnDevice<float>> params_, gradients_;
};

}  // namespace dpt::testing
