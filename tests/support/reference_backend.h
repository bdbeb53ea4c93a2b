// A Backend whose kernels are those of kernels/reference/reference.h, in double precision. It is
// strict about memory, to catch a wrong memory plan: it overwrites scratch and consumed gradients
// with NaN, checks saved data and activations in backward, and fails if an operation receives data
// that it declared unnecessary.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/reference/maths.h"
#include "tests/support/host_backend.h"

namespace dpt::testing {

using reference::Derivatives;
using reference::Maths;
using reference::Params;
using reference::Values;

inline Values read_floats(DevPtr from, std::size_t count) {
  const float* values = reinterpret_cast<const float*>(from.address);
  return {values, values + count};
}

/// Stores rounded values, or adds them to the values in memory.
inline void write_floats(DevPtr to, const Values& values, bool add = false) {
  float* out = reinterpret_cast<float*>(to.address);
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Assignment keeps -0, which an addition to 0 would lose.
    out[i] = static_cast<float>(add ? static_cast<double>(out[i]) + values[i] : values[i]);
  }
}

inline void fill_nan(DevPtr to, std::size_t bytes) {
  std::memset(reinterpret_cast<void*>(to.address), 0xFF, bytes);
}

/// Ways for an operation to keep the data that backward needs.
enum class Keep : std::uint8_t {
  activations,  ///< backward requests x and y
  saved         ///< forward copies x into `saved`; backward requests neither x nor y
};

class ReferenceOp : public Op {
 public:
  ReferenceOp(Maths maths, Keep keep) : maths_(std::move(maths)), keep_(keep) {}
  const Maths& maths() const { return maths_; }

  std::size_t scratch_bytes() const override { return 192; }
  std::size_t saved_bytes() const override {
    return (keep_ == Keep::saved ? maths_.x : maths_.y) * sizeof(float);
  }
  bool backward_needs_x() const override { return keep_ == Keep::activations; }
  bool backward_needs_y() const override { return keep_ == Keep::activations; }
  bool backward_keeps_dy() const override { return keep_ == Keep::saved; }
  bool separate_gradients() const override { return !maths_.sizes.empty(); }

  void forward(const OpArgs& args) override {
    const Values x = read_inputs(args);
    fill_nan(args.scratch, scratch_bytes());
    const Values y = run(x, args);
    write_floats(args.y, y);
    write_floats(args.saved, keep_ == Keep::saved ? x : y);
  }

  void backward(const OpArgs& args) override {
    CHECK(static_cast<bool>(args.x) == backward_needs_x());
    CHECK(static_cast<bool>(args.y) == backward_needs_y());
    if (!separate_gradients()) CHECK(static_cast<bool>(args.dx) == maths_.input_gradient);
    fill_nan(args.scratch, scratch_bytes());
    const Values x = keep_ == Keep::saved ? read_floats(args.saved, maths_.x) : read_inputs(args);
    if (keep_ == Keep::activations) {
      // x, y and saved data must be unchanged since forward ended.
      const std::vector<float> again = rounded(run(x, args));
      CHECK(std::memcmp(again.data(), address(args.y), maths_.y * sizeof(float)) == 0);
      CHECK(std::memcmp(again.data(), address(args.saved), maths_.y * sizeof(float)) == 0);
    }
    const Derivatives g = maths_.backward(x, read_params(args), read_floats(args.dy, maths_.y));
    if (!backward_keeps_dy()) fill_nan(args.dy, maths_.y * sizeof(float));
    write_input_gradients(args, g.x);
    for (std::size_t k = 0; k < maths_.params.size(); ++k) {
      if (maths_.params[k] == 0) continue;
      write_floats(args.params[k].gradient, g.params[k], args.write == GradWrite::add);
    }
  }

  std::string implementation() const override { return "reference"; }

 private:
  Params read_params(const OpArgs& args) const {
    Params all;
    for (std::size_t k = 0; k < maths_.params.size(); ++k) {
      all.push_back(read_floats(args.params[k].f32, maths_.params[k]));
    }
    return all;
  }
  Values read_inputs(const OpArgs& args) const {
    Values all = read_floats(args.x, maths_.input(0));
    for (std::size_t k = 1; k < maths_.inputs; ++k) {
      const Values more = read_floats(args.more_x[k - 1], maths_.input(k));
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
  void write_input_gradients(const OpArgs& args, const Values& dx) const {
    // Without separate gradients, all inputs have the same gradient.
    auto from = dx.begin();
    for (std::size_t k = 0; k < (separate_gradients() ? maths_.inputs : 1); ++k) {
      const DevPtr to = k == 0 ? args.dx : args.more_dx[k - 1];
      const auto end = from + static_cast<std::ptrdiff_t>(maths_.input(k));
      if (to) write_floats(to, {from, end});
      from = end;
    }
  }
  static const void* address(DevPtr at) { return reinterpret_cast<const void*>(at.address); }
  static std::vector<float> rounded(const Values& values) { return {values.begin(), values.end()}; }
  Values run(const Values& x, const OpArgs& args) const {
    return maths_.forward(x, read_params(args));
  }

  Maths maths_;
  Keep keep_;
};

/// ReLU that runs in place and needs only y, as in the real backends.
class ReferenceInPlaceRelu final : public Op {
 public:
  explicit ReferenceInPlaceRelu(std::size_t count) : count_(count) {}
  bool in_place() const override { return true; }
  bool backward_needs_x() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  bool gates_dy() const override { return true; }
  void forward(const OpArgs& args) override {
    write_floats(args.y, reference::relu(read_floats(args.x, count_)));
  }
  void backward(const OpArgs& args) override {
    CHECK(!args.x);
    write_floats(args.dx, reference::relu_backward(read_floats(args.dy, count_),
                                                   read_floats(args.y, count_)));
  }
  std::string implementation() const override { return "reference"; }

 private:
  std::size_t count_;
};

/// Dropout, in place. It reads the sample numbers and the step from the given addresses.
class ReferenceDropout final : public Op {
 public:
  explicit ReferenceDropout(const DropoutDesc& desc) : desc_(desc) {}
  bool in_place() const override { return true; }
  bool backward_needs_x() const override { return false; }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  void forward(const OpArgs& args) override { run(args, args.y, args.x); }
  void backward(const OpArgs& args) override {
    CHECK(!args.x);
    CHECK(!args.y);
    run(args, args.dx, args.dy);
  }
  std::string implementation() const override { return "reference"; }

 private:
  void run(const OpArgs& args, DevPtr to, DevPtr from) const {
    const auto* ids = reinterpret_cast<const std::int64_t*>(args.ids.address);
    const Values factors = reference::dropout_factors(
        desc_, {ids, ids + desc_.batch}, *reinterpret_cast<const std::int64_t*>(args.step.address));
    write_floats(to, reference::product(read_floats(from, factors.size()), factors));
  }
  DropoutDesc desc_;
};

/// A sum that runs in place and passes its gradient on.
class ReferenceInPlaceSum final : public Op {
 public:
  explicit ReferenceInPlaceSum(const SumDesc& desc) : desc_(desc) {}
  bool in_place() const override { return true; }
  bool backward_needs_x() const override { return false; }
  bool backward_needs_y() const override { return desc_.relu; }
  bool backward_keeps_dy() const override { return true; }
  bool passes_dy() const override { return !desc_.relu; }
  bool gates_dy() const override { return desc_.relu; }
  void forward(const OpArgs& args) override {
    Values sum = read_floats(args.x, count());
    for (int k = 1; k < desc_.inputs; ++k) {
      const Values more = read_floats(args.more_x[k - 1], count());
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
    }
    write_floats(args.y, desc_.relu ? reference::relu(sum) : sum);
  }
  void backward(const OpArgs& args) override {
    CHECK(!args.x);
    const Values dy = read_floats(args.dy, count());
    write_floats(args.dx,
                 desc_.relu ? reference::relu_backward(dy, read_floats(args.y, count())) : dy);
  }
  std::string implementation() const override { return "reference"; }

 private:
  std::size_t count() const {
    return static_cast<std::size_t>(desc_.batch * desc_.shape.elements());
  }
  SumDesc desc_;
};

/// Batch normalisation with batch statistics, in the four parts that the contract requires.
/// Completes dy if backward keeps dy.
class ReferenceBatchNorm final : public ReferenceOp {
 public:
  ReferenceBatchNorm(const BatchNormDesc& desc, Maths maths, Keep keep)
      : ReferenceOp(std::move(maths), keep), channels_(static_cast<std::size_t>(desc.shape.c)) {}
  std::int64_t coupled_channels() const override { return static_cast<std::int64_t>(channels_); }
  bool completes_dy() const override { return backward_keeps_dy(); }
  std::size_t saved_bytes() const override { return bytes() + ReferenceOp::saved_bytes(); }

  void forward_statistics(const OpArgs& args) override { mark(args.saved, 1); }
  void forward(const OpArgs& args) override {
    CHECK(marked(args.saved, 1));
    CHECK(args.values == static_cast<double>(maths().x / channels_));
    ReferenceOp::forward(behind(args));
  }
  void backward_statistics(const OpArgs& args) override {
    CHECK(marked(args.saved, 1));
    mark(args.saved + bytes() / 2, 2);
    fill_nan(args.scratch, scratch_bytes());
    if (args.dy_parts.first) complete(args);
  }
  void backward(const OpArgs& args) override {
    CHECK(marked(args.saved, 1));
    CHECK(marked(args.saved + bytes() / 2, 2));
    ReferenceOp::backward(behind(args));
  }

 private:
  std::size_t bytes() const { return 4 * channels_ * sizeof(float); }
  void complete(const OpArgs& args) const {
    CHECK(completes_dy());
    Values dy = read_floats(args.dy_parts.first, maths().y);
    if (args.dy_parts.second) {
      const Values more = read_floats(args.dy_parts.second, dy.size());
      for (std::size_t i = 0; i < dy.size(); ++i) dy[i] += more[i];
    }
    if (args.dy_parts.gate) {
      dy = reference::relu_backward(dy, read_floats(args.dy_parts.gate, dy.size()));
    }
    write_floats(args.dy, dy);
  }
  OpArgs behind(OpArgs args) const {
    args.saved = args.saved + bytes();
    return args;
  }
  void mark(DevPtr at, double value) const { write_floats(at, Values(2 * channels_, value)); }
  bool marked(DevPtr at, double value) const {
    return read_floats(at, 2 * channels_) == Values(2 * channels_, value);
  }
  std::size_t channels_;
};

class ReferenceCrossEntropy final : public LossOp {
 public:
  explicit ReferenceCrossEntropy(const CrossEntropyDesc& desc) : desc_(desc) {}

  void run(const LossArgs& args) override {
    const auto* slots = reinterpret_cast<const std::int32_t*>(args.slots.address);
    const auto* all_labels = reinterpret_cast<const std::int32_t*>(args.labels.address);
    std::vector<std::int32_t> labels;
    for (std::int64_t k = 0; k < desc_.batch; ++k) labels.push_back(all_labels[slots[k]]);
    const float scale =
        args.inverse_count ? *reinterpret_cast<const float*>(args.inverse_count.address) : 1.0F;
    const auto count = static_cast<std::size_t>(desc_.batch * desc_.classes);
    const reference::CrossEntropy result = reference::cross_entropy(
        desc_, read_floats(args.logits, count), labels, static_cast<double>(scale));
    if (desc_.training) write_floats(args.dlogits, result.gradient);
    auto& metrics = *reinterpret_cast<StepMetrics*>(args.metrics.address);
    const float stop_votes = metrics.stop_votes;
    if (args.write == GradWrite::overwrite) metrics = StepMetrics{};
    metrics.stop_votes = stop_votes;
    metrics.loss_sum = static_cast<float>(static_cast<double>(metrics.loss_sum) + result.loss_sum);
    metrics.weight = static_cast<float>(static_cast<double>(metrics.weight) + result.weight);
    metrics.count.add_count(desc_.batch);
    metrics.labelled.add_count(result.labelled);
    metrics.sums[0].add_count(result.correct);
    if (args.sample_loss) write_floats(args.sample_loss, result.sample_loss);
    if (args.prediction) {
      std::memcpy(reinterpret_cast<void*>(args.prediction.address), result.prediction.data(),
                  result.prediction.size() * sizeof(std::int32_t));
    }
  }

 private:
  CrossEntropyDesc desc_;
};

/// Gathers f32 samples. It does not support augmentation, which the tests of the backends cover.
class ReferenceInput final : public InputOp {
 public:
  explicit ReferenceInput(const InputDesc& desc) : desc_(desc) {}

  void run(const InputArgs& args) override {
    REQUIRE((desc_.raw_type == DType::f32 && !desc_.crop && !desc_.flip && desc_.mean.empty()));
    const auto* slots = reinterpret_cast<const std::int32_t*>(args.slots.address);
    const auto count = static_cast<std::size_t>(desc_.out.elements());
    for (std::size_t k = 0; k < static_cast<std::size_t>(desc_.batch); ++k) {
      const std::size_t from = static_cast<std::size_t>(slots[k]) * count * sizeof(float);
      write_floats(args.y + k * count * sizeof(float), read_floats(args.raw + from, count));
    }
  }

 private:
  InputDesc desc_;
};

class ReferenceBackend : public HostBackend {
 public:
  explicit ReferenceBackend(Keep keep = Keep::activations) : keep_(keep) {
    info_.name = info_.description = info_.library = "reference";
  }

  void upload(DevPtr to, const void* host, std::size_t bytes) override {
    std::memcpy(reinterpret_cast<void*>(to.address), host, bytes);
  }
  void download(void* host, DevPtr from, std::size_t bytes) override {
    std::memcpy(host, reinterpret_cast<const void*>(from.address), bytes);
  }
  void copy(DevPtr to, DevPtr from, std::size_t bytes) override {
    std::memmove(reinterpret_cast<void*>(to.address), reinterpret_cast<const void*>(from.address),
                 bytes);
  }
  void zero(DevPtr to, std::size_t bytes) override {
    std::memset(reinterpret_cast<void*>(to.address), 0, bytes);
  }

  std::unique_ptr<Op> make(const OpDesc& desc) override {
    return std::visit([&](const auto& each) { return op(each); }, desc);
  }
  std::unique_ptr<LossOp> make_loss(const LossOpDesc& desc) override {
    return std::visit([&](const auto& each) { return loss(each); }, desc);
  }
  std::unique_ptr<InputOp> make_input(const InputDesc& desc) override {
    return std::make_unique<ReferenceInput>(desc);
  }

  void add(DevPtr to, DevPtr a, DevPtr b, std::int64_t count) override {
    Values sum = read_floats(a, static_cast<std::size_t>(count));
    const Values other = read_floats(b, sum.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
    write_floats(to, sum);
  }

 private:
  /// Creates an operation that computes the mathematics of its description.
  template <class Desc>
  std::unique_ptr<Op> op(const Desc& d) {
    return std::make_unique<ReferenceOp>(reference::maths_of(d), keep_);
  }
  std::unique_ptr<Op> op(const ReluDesc& d) {
    if (keep_ == Keep::activations) return op<ReluDesc>(d);
    return std::make_unique<ReferenceInPlaceRelu>(
        static_cast<std::size_t>(d.batch * d.shape.elements()));
  }
  std::unique_ptr<Op> op(const DropoutDesc& d) { return std::make_unique<ReferenceDropout>(d); }
  std::unique_ptr<Op> op(const SumDesc& d) {
    // The Executor's sums of gradients are in place too.
    if (keep_ == Keep::saved || !d.training) return std::make_unique<ReferenceInPlaceSum>(d);
    return op<SumDesc>(d);
  }
  std::unique_ptr<Op> op(const BatchNormDesc& d) {
    if (!d.batch_statistics) no();
    return std::make_unique<ReferenceBatchNorm>(d, reference::maths_of(d), keep_);
  }
  std::unique_ptr<LossOp> loss(const CrossEntropyDesc& desc) {
    return std::make_unique<ReferenceCrossEntropy>(desc);
  }
  std::unique_ptr<LossOp> loss(const ElementLossDesc&) { no(); }

  Keep keep_;
};

}  // namespace dpt::testing
