#include "engine/self_check/operation_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "engine/self_check/operation_text.h"
#include "kernels/common/bf16.h"
#include "kernels/reference/maths.h"

namespace dpt {
namespace {

using reference::Derivatives;
using reference::Maths;
using reference::Params;
using reference::Values;

/// Approximate number of multiply-adds of the reference in each direction.
constexpr std::int64_t kProducts = 4'000'000;

/// Maximum number of weights of a linear layer. In place of a larger one, a layer with fewer
/// outputs is checked.
constexpr std::int64_t kMaxWeights = 2'000'000;

/// Numbers of values and of multiply-adds of a sample beyond which an operation is slow on a CPU.
constexpr std::int64_t kLargeValues = 200'000, kLargeProducts = 20'000'000;

/// Source of test values in (-1, 1), none of them 0: sign * (1 + m / 128) / 2^e with e from 1 to 4.
class TestValues {
 public:
  explicit TestValues(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  /// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  double value() {
    const std::uint64_t r = bits();
    const double size =
        std::ldexp(1 + static_cast<double>(r & 127) / 128, -1 - static_cast<int>((r >> 7) & 3));
    return (r >> 9) & 1 ? size : -size;
  }
  Values dense(std::size_t count) {
    Values all(count);
    for (double& each : all) each = value();
    return all;
  }
  /// Returns values up to 8: where activations have their kinks and tails.
  Values wide(std::size_t count) {
    Values all = dense(count);
    for (double& each : all) each *= 8;
    return all;
  }
  /// Returns about `given` values at random pixels, equally many in each channel, and zeros.
  Values sparse(std::size_t count, std::int64_t channels, std::int64_t given) {
    const auto c = static_cast<std::size_t>(channels);
    Values all(count, 0.0);
    for (std::size_t k = 0; k < static_cast<std::size_t>(given); ++k) {
      all[bits() % (count / c) * c + k % c] = value();
    }
    return all;
  }

 private:
  std::uint64_t state_;
};

/// Channels of an operation's input and output, and the multiply-adds that one value of each causes
/// in the reference. 0 for an operation without matrix products.
struct ProductCosts {
  std::int64_t x_channels = 1, y_channels = 1, per_x = 0, per_dy = 0;
};
template <class Desc>
ProductCosts costs_of(const Desc&) {
  return {};
}
ProductCosts costs_of(const Conv2dDesc& d) {
  const std::int64_t taps = d.kernel.h * d.kernel.w;
  return {d.in.c, d.out.c, taps * (d.conv_out.c / d.groups), 2 * taps * (d.in.c / d.groups)};
}
ProductCosts costs_of(const ConvTranspose2dDesc& d) {
  const std::int64_t taps = d.kernel.h * d.kernel.w;
  return {d.in.c, d.out.c, taps * (d.out.c / d.groups), 2 * taps * (d.in.c / d.groups)};
}
ProductCosts costs_of(const LinearDesc& d) {
  return {d.in, d.out, d.out, 2 * d.in};
}

Values values_for(TestValues& source, std::size_t count, std::int64_t channels,
                  std::int64_t products) {
  if (products == 0) return source.dense(count);
  // Let every channel have values, if that costs at most four times as much.
  const std::int64_t given = std::max<std::int64_t>(
      1, std::max(kProducts / products, std::min(2 * channels, 4 * kProducts / products)));
  if (2 * given > static_cast<std::int64_t>(count)) return source.dense(count);
  return source.sparse(count, channels, given);
}

OpDesc with_batch(OpDesc desc, std::int64_t batch) {
  std::visit([&](auto& d) { d.batch = batch; }, desc);
  if (auto* conv = std::get_if<Conv2dDesc>(&desc); conv && conv->pool) conv->pool->batch = batch;
  return desc;
}

/// Returns the operation up to where a small error may change a decision (a ReLU's, a pool's);
/// nothing if it decides nothing about computed values.
std::optional<OpDesc> before_decisions(const OpDesc& desc) {
  if (const auto* conv = std::get_if<Conv2dDesc>(&desc); conv && (conv->relu || conv->pool)) {
    Conv2dDesc alone = *conv;
    alone.relu = false;
    alone.pool.reset();
    alone.out = alone.conv_out;
    return alone;
  }
  const auto without_relu = [](const auto* d) -> std::optional<OpDesc> {
    if (!d || !d->relu) return std::nullopt;
    auto alone = *d;
    alone.relu = false;
    return alone;
  };
  if (const auto alone = without_relu(std::get_if<LinearDesc>(&desc))) return alone;
  return without_relu(std::get_if<BatchNormDesc>(&desc));
}

double largest_of(const Values& values) {
  double largest = 0;
  for (const double v : values) largest = std::max(largest, std::abs(v));
  return largest;
}

/// Sets dy to 0 where the gradient depends on a decision between values that differ by less than
/// the bound: a correct kernel may decide otherwise than the reference.
void clear_undecided(const OpDesc& desc, const Values& x, const Params& params, double bound,
                     Values& dy) {
  const std::optional<OpDesc> alone = before_decisions(desc);
  if (!alone) return;
  Values z = reference::maths_of(*alone).forward(x, params);
  const double margin = 2 * bound * std::max(0.3, largest_of(z));
  Values undecided(z.size());
  const auto* conv = std::get_if<Conv2dDesc>(&desc);
  const bool has_relu = !conv || conv->relu;
  for (std::size_t i = 0; i < z.size(); ++i) {
    undecided[i] = has_relu && std::abs(z[i]) < margin ? 1 : 0;
  }
  if (conv && conv->pool) {
    if (conv->relu) z = reference::relu(std::move(z));
    Pool2dDesc pool = *conv->pool;
    const Values best = reference::pool(pool, z);
    const Values margins = reference::pool_margins(pool, z);
    pool.kind = PoolKind::average;
    undecided = reference::pool(pool, undecided);
    for (std::size_t i = 0; i < dy.size(); ++i) {
      // Equal zeros after a ReLU have no gradient, whoever wins.
      const bool tie = margins[i] < margin && !(conv->relu && best[i] == 0);
      if (tie) undecided[i] = 1;
    }
  }
  for (std::size_t i = 0; i < dy.size(); ++i) {
    if (undecided[i] != 0) dy[i] = 0;
  }
}

/// Device memory for an array, with guard bytes after it that no kernel may change.
class Array {
 public:
  Array(Backend& backend, std::size_t elements, DType type)
      : backend_(&backend),
        type_(type),
        bytes_(elements * size_of(type)),
        memory_(backend.allocate(bytes_ + kGuard.size(), "the self check")) {
    backend.zero(memory_.ptr(), bytes_);
    backend.upload(memory_.ptr() + bytes_, kGuard.data(), kGuard.size());
  }
  DevPtr ptr() const { return memory_.ptr(); }
  std::size_t bytes() const { return bytes_; }
  void zero() { backend_->zero(ptr(), bytes_); }
  /// Writes values from an element on.
  void set(std::span<const double> values, std::size_t at = 0) {
    type_ == DType::bf16 ? set_as<Bf16>(values, at) : set_as<float>(values, at);
  }
  std::vector<float> get(std::size_t at, std::size_t count) const {
    return type_ == DType::bf16 ? get_as<Bf16>(at, count) : get_as<float>(at, count);
  }
  /// Returns true if nothing was written after the array.
  bool is_guarded() const {
    std::array<std::byte, kGuardBytes> now;
    backend_->download(now.data(), ptr() + bytes_, now.size());
    backend_->synchronize();
    return now == kGuard;
  }

 private:
  template <class T>
  void set_as(std::span<const double> values, std::size_t at) {
    if (values.empty()) return;
    std::vector<T> stored(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) store(stored[i], static_cast<float>(values[i]));
    backend_->upload(ptr() + at * sizeof(T), stored.data(), stored.size() * sizeof(T));
    backend_->synchronize();
  }
  template <class T>
  std::vector<float> get_as(std::size_t at, std::size_t count) const {
    if (count == 0) return {};
    std::vector<T> stored(count);
    backend_->download(stored.data(), ptr() + at * sizeof(T), count * sizeof(T));
    backend_->synchronize();
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = to_float(stored[i]);
    return values;
  }

  static constexpr std::size_t kGuardBytes = 256;
  static constexpr std::array<std::byte, kGuardBytes> kGuard = [] {
    std::array<std::byte, kGuardBytes> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>(0xA5 ^ i);
    return all;
  }();

  Backend* backend_;
  DType type_;
  std::size_t bytes_;
  DeviceMemory memory_;
};

/// A named array of results, on the host.
struct Result {
  std::string name;
  std::vector<float> values;
};

/// One operation on the device, with its memory.
class OperationRun {
 public:
  /// `live` samples have values, of a batch of `batch`.
  OperationRun(Backend& backend, const OpDesc& desc, const Maths& maths, std::int64_t live,
               std::int64_t batch)
      : backend_(backend),
        maths_(maths),
        live_(static_cast<std::size_t>(live)),
        batch_(static_cast<std::size_t>(batch)),
        type_(std::visit([](const auto& d) { return d.type; }, desc)),
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

  std::string implementation() const { return op_->implementation(); }

  void set(const Values& x, const Params& params) {
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
  /// Runs both directions and returns the output and the gradients. With GradWrite::add, those of
  /// the parameters are added to the results of the run before.
  std::vector<Result> run(const Values& dy, GradWrite write, bool has_backward) {
    std::vector<Result> results;
    OpArgs args = arguments();
    forget_samples(y_);
    forget_start(saved_);
    forget_start(scratch_);
    if (op_->coupled_channels() > 0) op_->forward_statistics(args);
    op_->forward(args);
    results.push_back({"output", samples_of(y_, maths_.y)});
    if (!has_backward) return results;
    set_samples(dy_, dy);
    for (Array& each : dx_) forget_samples(each);
    for (Array& each : gradients_) {
      if (write == GradWrite::overwrite) forget(each.ptr(), each.bytes());
    }
    forget_start(scratch_);
    args.write = write;
    if (!op_->backward_needs_x()) args.x = {};
    if (!op_->backward_needs_y()) args.y = {};
    if (op_->coupled_channels() > 0) op_->backward_statistics(args);
    op_->backward(args);
    std::vector<float> dx;
    for (std::size_t k = 0; k < dx_.size() && maths_.input_gradient; ++k) {
      const std::vector<float> part = samples_of(dx_[k], maths_.input(k));
      dx.insert(dx.end(), part.begin(), part.end());
    }
    if (maths_.input_gradient) results.push_back({"gradient of the input", std::move(dx)});
    for (std::size_t k = 0; k < gradients_.size(); ++k) {
      if (!has_gradient(k)) continue;
      results.push_back(
          {"gradient of " + std::string(names_[k]), gradients_[k].get(0, maths_.params[k])});
    }
    if (op_->backward_keeps_dy()) {
      results.push_back(
          {"gradient of the output, which backward must keep", samples_of(dy_, maths_.y)});
    }
    return results;
  }
  /// Returns the results that the reference expects, in the order of `run`. `parameters`: factor of
  /// the parameters' gradients.
  std::vector<Values> expected(const Values& y, const Values& dy, const Derivatives* g,
                               double parameters) const {
    std::vector<Values> all{y};
    if (!g) return all;
    if (maths_.input_gradient) {
      // Without separate gradients, all inputs have the same gradient.
      const std::size_t count = op_->separate_gradients() ? maths_.x : maths_.input(0);
      all.emplace_back(g->x.begin(), g->x.begin() + static_cast<std::ptrdiff_t>(count));
    }
    for (std::size_t k = 0; k < gradients_.size(); ++k) {
      if (!has_gradient(k)) continue;
      all.push_back(g->params[k]);
      for (double& each : all.back()) each *= parameters;
    }
    if (op_->backward_keeps_dy()) all.push_back(dy);
    return all;
  }
  /// Returns the name of an array after whose end a kernel has written, or an empty text.
  std::string overrun_array() const {
    if (!y_.is_guarded()) return "output";
    if (!dy_.is_guarded()) return "gradient of the output";
    if (!saved_.is_guarded()) return "memory for backward";
    if (!scratch_.is_guarded()) return "scratch memory";
    for (const Array& each : dx_) {
      if (!each.is_guarded()) return "gradient of the input";
    }
    for (std::size_t k = 0; k < gradients_.size(); ++k) {
      if (!gradients_[k].is_guarded()) return "gradient of " + std::string(names_[k]);
    }
    return {};
  }

 private:
  Array on_device(std::size_t elements) const {
    return {backend_, elements / live_ * batch_, type_};
  }
  /// Parameters after the bias are running statistics, which have no gradient.
  bool has_gradient(std::size_t k) const { return k < 2 && maths_.params[k] > 0; }

  /// Writes the samples that have values to the first places of the batch; the last to its end.
  void set_samples(Array& array, std::span<const double> values) {
    if (batch_ != live_) array.zero();
    const std::size_t sample = values.size() / live_;
    const std::size_t first = sample * (live_ - 1);
    if (first > 0) array.set(values.first(first));
    array.set(values.subspan(first), (batch_ - 1) * sample);
  }
  std::vector<float> samples_of(const Array& array, std::size_t count) const {
    const std::size_t sample = count / live_;
    std::vector<float> all = array.get(0, sample * (live_ - 1));
    const std::vector<float> last = array.get((batch_ - 1) * sample, sample);
    all.insert(all.end(), last.begin(), last.end());
    return all;
  }
  /// Fills memory with NaN: an element that is never written, or read too early, is then noticed.
  void forget(DevPtr at, std::size_t bytes) {
    static const std::vector<std::byte> kNaN(1 << 20, std::byte{0xFF});
    for (std::size_t done = 0; done < bytes; done += kNaN.size()) {
      backend_.upload(at + done, kNaN.data(), std::min(kNaN.size(), bytes - done));
    }
  }
  /// Fills the start of an array of any size.
  void forget_start(Array& array) {
    forget(array.ptr(), std::min<std::size_t>(array.bytes(), 1 << 20));
  }
  /// Fills the samples that are compared.
  void forget_samples(Array& array) {
    const std::size_t sample = array.bytes() / batch_;
    forget(array.ptr(), sample * (live_ - 1));
    forget(array.ptr() + sample * (batch_ - 1), sample);
  }

  OpArgs arguments() {
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

  Backend& backend_;
  const Maths& maths_;
  std::size_t live_, batch_;
  DType type_;
  std::span<const std::string_view> names_;
  std::unique_ptr<Op> op_;
  std::vector<Array> x_, dx_;
  Array y_, dy_, saved_, scratch_, ids_, step_;
  std::vector<Array> weights_, halves_, gradients_;
};

/// Allowed difference of a result: `relative` times its largest value, but at least times `least`.
struct Bound {
  double relative = 0, least = 0.3;
  std::size_t terms = 1;  ///< values of the largest activation

  /// Returns the difference allowed for a result. A sum of n random terms has errors of the order
  /// of sqrt(n) even if it is 0.
  double of(const Values& want) const {
    const double sum = 0.1 * std::sqrt(static_cast<double>(terms) /
                                       std::max(1.0, static_cast<double>(want.size())));
    return relative * std::max({least, largest_of(want), sum});
  }
};

/// Returns the first disagreement of a result, or an empty text.
std::string disagreement(const Result& got, const Values& want, const Bound& allowed) {
  const double bound = allowed.of(want);
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto value = static_cast<double>(got.values[i]);
    if (std::abs(value - want[i]) <= bound) continue;
    return fmt::format("{}, element {} of {}: {:.9g}; expected {:.9g}, tolerance {:.2g}", got.name,
                       i, want.size(), value, want[i] + 0.0, bound);
  }
  return {};
}

std::uint32_t bits_of(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}

/// Returns the first difference between two runs, or an empty text.
std::string difference(const Result& first, const Result& second) {
  for (std::size_t i = 0; i < first.values.size(); ++i) {
    if (bits_of(first.values[i]) == bits_of(second.values[i])) continue;
    return fmt::format("{}, element {} of {}: {:.9g} in one run and {:.9g} in the next", first.name,
                       i, first.values.size(), first.values[i], second.values[i]);
  }
  return {};
}

/// Extent of a check.
struct CheckOptions {
  bool backward = true;   ///< runs backward
  bool same_bits = true;  ///< requires the same bits from two runs
  bool adds = true;       ///< also adds gradients to others
};

/// Results that the reference expects from a run, and from a later one that adds its gradients.
struct Expected {
  std::vector<Values> first, added;
};

/// Returns a hash of the results: FNV-1a of their bits.
std::uint64_t hash_of(const std::vector<Result>& results) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const Result& result : results) {
    for (const float value : result.values) {
      hash = (hash ^ bits_of(value)) * 0x100000001B3ULL;
    }
  }
  return hash;
}

/// Compares the results of several runs; returns the first problem, or an empty text. Sets `bits`
/// to the hash of the first.
std::string problem_of(OperationRun& run, const Values& dy, const CheckOptions& options,
                       const Expected& want, const Bound& bound, std::uint64_t& bits) {
  const std::vector<Result> first = run.run(dy, GradWrite::overwrite, options.backward);
  bits = hash_of(first);
  const std::vector<Result> second = run.run(dy, GradWrite::overwrite, options.backward);
  std::vector<Result> added;
  if (options.adds) added = run.run(dy, GradWrite::add, options.backward);
  for (std::size_t k = 0; k < want.first.size(); ++k) {
    if (std::string text = disagreement(first[k], want.first[k], bound); !text.empty()) return text;
    if (std::string text = options.same_bits ? difference(first[k], second[k])
                                             : disagreement(second[k], want.first[k], bound);
        !text.empty()) {
      return text;
    }
    if (!options.adds) continue;
    if (std::string text = disagreement(added[k], want.added[k], bound); !text.empty()) {
      return "when gradients are added: " + text;
    }
  }
  const std::string past = run.overrun_array();
  return past.empty() ? past : "a kernel writes past the end of the " + past;
}

/// Returns a linear layer with fewer outputs if it has too many weights; else the operation itself.
OpDesc limited(OpDesc desc) {
  if (auto* linear = std::get_if<LinearDesc>(&desc)) {
    linear->out = std::clamp<std::int64_t>(kMaxWeights / linear->in, 1, linear->out);
  }
  return desc;
}

/// Returns true if the operation is checked with one sample and without adding gradients, to save
/// a CPU's time.
bool is_large(const OpDesc& desc) {
  const OpDesc one = with_batch(desc, 1);
  const Maths maths = reference::maths_of(one);
  const ProductCosts costs = std::visit([](const auto& d) { return costs_of(d); }, one);
  return static_cast<std::int64_t>(std::max(maths.x, maths.y)) > kLargeValues ||
         static_cast<std::int64_t>(maths.x) * costs.per_x > kLargeProducts;
}

/// Returns true if the operation's kernels depend on the batch.
bool depends_on_batch(const OpDesc& desc) {
  return std::holds_alternative<Conv2dDesc>(desc) ||
         std::holds_alternative<ConvTranspose2dDesc>(desc) ||
         std::holds_alternative<LinearDesc>(desc);
}

/// Returns true if an operation with a whole batch takes at most a quarter of the free memory,
/// which several replicas may share. `op` is made for this batch, `one` for one sample.
bool fits(DeviceQueue& device, const Op& op, const Maths& one, std::int64_t batch, DType type) {
  // x, y and their gradients.
  const double bytes = 2 * static_cast<double>(one.x + one.y) * static_cast<double>(batch) *
                           static_cast<double>(size_of(type)) +
                       static_cast<double>(op.saved_bytes() + op.scratch_bytes());
  return 4 * bytes <= static_cast<double>(device.free_bytes());
}

/// Returns the number of values with which a normalisation computes each statistic of a sample; 0
/// for another operation.
std::int64_t values_per_statistic(const OpDesc& desc) {
  if (const auto* batch = std::get_if<BatchNormDesc>(&desc); batch && batch->batch_statistics) {
    return batch->shape.h * batch->shape.w;
  }
  if (const auto* group = std::get_if<GroupNormDesc>(&desc)) {
    return group->shape.elements() / group->groups;
  }
  return 0;
}

/// Returns the number of samples that get values.
std::int64_t live_samples(const OpDesc& desc, std::int64_t batch, bool saves_time) {
  const std::int64_t usual = std::min<std::int64_t>(batch, saves_time ? 1 : 2);
  if (!std::holds_alternative<BatchNormDesc>(desc) || values_per_statistic(desc) == 0) return usual;
  // The variance of few values may be near 0, and the results ill-conditioned. Training itself
  // never normalises fewer than two.
  constexpr std::int64_t kFewest = 16;
  const std::int64_t each = values_per_statistic(desc);
  return std::max(usual, (kFewest + each - 1) / each);
}

/// Returns the batch with which the device runs the operation: the whole batch on a GPU that has
/// the memory; otherwise the smallest from `live` on for which it has the same kernels as for the
/// whole.
std::int64_t batch_on_device(Backend& backend, const OpDesc& desc, std::int64_t live,
                             std::int64_t batch) {
  if (!depends_on_batch(desc) || live >= batch) return live;
  const std::unique_ptr<Op> whole = backend.make(with_batch(desc, batch));
  if (backend.info().queues) {
    const Maths one = reference::maths_of(with_batch(desc, 1));
    const DType type = std::visit([](const auto& d) { return d.type; }, desc);
    return fits(backend, *whole, one, batch, type) ? batch : live;
  }
  std::int64_t least = live;
  while (least < batch &&
         backend.make(with_batch(desc, least))->implementation() != whole->implementation()) {
    least = std::min(2 * least, batch);
  }
  return least;
}

}  // namespace

double relative_bound(DType type, bool tf32) {
  if (type == DType::bf16) return 4e-3;
  return tf32 ? 1e-3 : 1e-5;
}

OperationCheck check_operation(Backend& backend, const OpDesc& desc, bool exact) {
  const std::int64_t batch = std::visit([](const auto& d) { return d.batch; }, desc);
  const OpDesc checked = limited(desc);
  const bool saves_time = !backend.info().queues && is_large(checked);
  const std::int64_t live = live_samples(checked, batch, saves_time);
  const std::int64_t device_batch = batch_on_device(backend, checked, live, batch);
  const OpDesc small = with_batch(checked, live);

  const Maths maths = reference::maths_of(small);
  const ProductCosts costs = std::visit([](const auto& d) { return costs_of(d); }, small);
  TestValues source(1);
  const Values x = std::holds_alternative<ActivationDesc>(small)
                       ? source.wide(maths.x)
                       : values_for(source, maths.x, costs.x_channels, costs.per_x);
  Params params;
  for (const std::size_t count : maths.params) {
    params.push_back(source.dense(count));
    // The fourth parameter of a normalisation is the variance.
    if (params.size() == 4) {
      for (double& each : params.back()) each = 0.5 + std::abs(each);
    }
  }
  const bool is_training = std::visit(
      [](const auto& d) {
        if constexpr (requires { d.training; }) return d.training;
        return true;
      },
      small);
  // Training does not run backward of an operation that gives no gradients.
  const bool has_params = std::any_of(maths.params.begin(), maths.params.end(),
                                      [](std::size_t count) { return count > 0; });
  const bool has_backward = is_training && (maths.input_gradient || has_params);
  Bound bound;
  bound.relative = std::visit(
      [](const auto& d) {
        if constexpr (requires { d.tf32; }) return relative_bound(d.type, d.tf32);
        return relative_bound(d.type, false);
      },
      small);
  bound.terms = std::max(maths.x, maths.y);
  // A group of few values may have a variance near 0, and then large terms that cancel.
  const bool is_group = std::holds_alternative<GroupNormDesc>(small);
  if (is_group && values_per_statistic(small) < 64) bound.least = 30;

  const Values y = maths.forward(x, params);
  std::optional<Derivatives> gradients;
  Values dy;
  if (has_backward) {
    dy = values_for(source, maths.y, costs.y_channels, costs.per_dy);
    clear_undecided(small, x, params, bound.relative, dy);
    gradients = maths.backward(x, params, dy);
  }
  OperationRun run(backend, with_batch(checked, device_batch), maths, live, device_batch);
  run.set(x, params);
  const Derivatives* g = gradients ? &*gradients : nullptr;
  const Expected want = {run.expected(y, dy, g, 1), run.expected(y, dy, g, 2)};
  OperationCheck result{operation_text(checked), run.implementation(), {}, 0};
  result.problem =
      problem_of(run, dy, {has_backward, exact, !saves_time}, want, bound, result.bits);
  return result;
}

}  // namespace dpt
