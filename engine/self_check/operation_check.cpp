#include "engine/self_check/operation_check.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "engine/self_check/operation_run.h"
#include "engine/self_check/operation_text.h"
#include "engine/self_check/test_values.h"
#include "kernels/base/xxhash.h"
#include "kernels/reference/maths.h"

namespace dpt {
namespace {

using reference::Derivatives;
using reference::Maths;
using reference::Params;
using reference::Values;

/// Maximum number of weights of a linear layer. If a layer has more, one with fewer outputs is
/// checked in its place.
constexpr std::int64_t kMaxWeights = 2'000'000;

/// Operations with more values or more multiply-adds per sample than this are slow on a CPU.
constexpr std::int64_t kLargeValues = 200'000, kLargeProducts = 20'000'000;

OpDesc with_batch(OpDesc desc, std::int64_t batch) {
  std::visit([&](auto& d) { d.batch = batch; }, desc);
  if (auto* conv = std::get_if<Conv2dDesc>(&desc); conv && conv->pool) conv->pool->batch = batch;
  return desc;
}

/// Returns the operation without its last parts, those in which a small error may change a decision
/// (a ReLU, a pool). Returns nothing if the operation decides nothing about computed values.
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
/// the bound. There, a correct kernel may decide differently from the reference.
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
      // Equal zeros after a ReLU have no gradient, whichever wins.
      const bool tie = margins[i] < margin && !(conv->relu && best[i] == 0);
      if (tie) undecided[i] = 1;
    }
  }
  for (std::size_t i = 0; i < dy.size(); ++i) {
    if (undecided[i] != 0) dy[i] = 0;
  }
}

/// Allowed difference of a result: `relative` times its largest value, which counts as at least
/// `least`.
struct Bound {
  double relative = 0, least = 0.3;
  double of_gradients = 1;  ///< factor for gradients
  std::size_t terms = 1;    ///< values of the largest activation

  /// Returns the difference allowed for a result of `count` values, the largest of which is
  /// `largest`. A sum of n random terms has errors of the order of sqrt(n) even if it is 0.
  double of(double largest, std::size_t count) const {
    const double sum =
        0.1 * std::sqrt(static_cast<double>(terms) / std::max(1.0, static_cast<double>(count)));
    return relative * std::max({least, largest, sum});
  }
};

/// Expected values of a result: `values` times `scale`, up to a difference of `bound`.
struct Wanted {
  const Values& values;
  double scale, bound;
};

/// Returns the first disagreement of a result, or an empty string.
std::string disagreement(const NamedResult& got, const Wanted& want) {
  for (std::size_t i = 0; i < want.values.size(); ++i) {
    const auto value = static_cast<double>(got.values[i]);
    const double wanted = want.scale * want.values[i];
    if (std::abs(value - wanted) <= want.bound) continue;
    return wrong_value_text(got.name, i, want.values.size(), value, wanted, want.bound);
  }
  return {};
}

std::uint32_t bits_of(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}

/// Returns the first difference between two runs, or an empty string.
std::string difference(const NamedResult& first, const NamedResult& second) {
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

/// Continues `hash`, the hash of earlier results, over the bits of these results. Returns the new
/// hash.
std::uint64_t hash_of(const std::vector<NamedResult>& results, std::uint64_t hash) {
  for (const NamedResult& result : results) {
    hash = XXH3_64bits_withSeed(result.values.data(), result.values.size() * sizeof(float), hash);
  }
  return hash;
}

/// Compares the results of several runs, and stores the first problem in `check`.
void compare(OperationRun& run, const Values& dy, const CheckOptions& options,
             const std::vector<Values>& want, const Bound& bound, OperationCheck& check) {
  const auto results = [&](RunVariant variant) { return run.run(dy, variant, options.backward); };
  const std::vector<NamedResult> first = results(RunVariant::plain);
  const std::vector<NamedResult> second = results(RunVariant::plain);
  // Variants that must give the same results in another way.
  std::vector<std::pair<const char*, std::vector<NamedResult>>> others;
  std::vector<NamedResult> added;
  if (options.adds) added = results(RunVariant::adds);
  if (options.backward && run.op().completes_dy()) {
    others.emplace_back("when backward completes the gradient of the output: ",
                        results(RunVariant::in_parts));
  }
  if (run.op().in_place()) {
    others.emplace_back("in place of the input: ", results(RunVariant::in_place));
  }
  check.bits = hash_of(added, hash_of(first, 0));
  for (const auto& [how, got] : others) check.bits = hash_of(got, check.bits);
  for (std::size_t k = 0; k < want.size(); ++k) {
    const double largest = largest_of(want[k]);
    // Added gradients of parameters are twice as large.
    const auto wanted = [&](double scale) {
      const double factor = first[k].pass == Pass::forward ? 1 : bound.of_gradients;
      return Wanted{want[k], scale, factor * bound.of(scale * largest, want[k].size())};
    };
    std::string problem = disagreement(first[k], wanted(1));
    if (problem.empty()) {
      problem =
          options.same_bits ? difference(first[k], second[k]) : disagreement(second[k], wanted(1));
    }
    const auto compare_other = [&](const char* how, const std::vector<NamedResult>& got,
                                   double scale) {
      if (!problem.empty() || k >= got.size()) return;
      problem = disagreement(got[k], wanted(scale));
      if (!problem.empty()) problem = how + problem;
    };
    compare_other("when gradients are added: ", added,
                  first[k].pass == Pass::backward_weights ? 2 : 1);
    for (const auto& [how, got] : others) compare_other(how, got, 1);
    if (problem.empty()) continue;
    check.problem = std::move(problem);
    check.replaceable_kernel = run.op().replaceable_kernel(first[k].pass);
    return;
  }
  const std::string past = run.overrun_array();
  if (!past.empty()) check.problem = "a kernel writes past the end of the " + past;
}

/// Returns the operation itself or, for a linear layer with too many weights, one with fewer
/// outputs.
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
  const ProductCosts costs = costs_of(one);
  return static_cast<std::int64_t>(std::max(maths.x, maths.y)) > kLargeValues ||
         static_cast<std::int64_t>(maths.x) * costs.per_x > kLargeProducts;
}

/// Returns true if the operation's kernels depend on the batch.
bool depends_on_batch(const OpDesc& desc) {
  return std::holds_alternative<Conv2dDesc>(desc) ||
         std::holds_alternative<ConvTranspose2dDesc>(desc) ||
         std::holds_alternative<LinearDesc>(desc);
}

/// Returns true if an operation on a whole batch takes at most a quarter of the free memory,
/// because several replicas may share it. `op` is made for this batch, `one` for one sample.
bool fits(DeviceQueue& device, const Op& op, const Maths& one, std::int64_t batch, DType type) {
  // x, y and their gradients.
  const double bytes = 2 * static_cast<double>(one.x + one.y) * static_cast<double>(batch) *
                           static_cast<double>(size_of(type)) +
                       static_cast<double>(op.saved_bytes() + op.scratch_bytes());
  return 4 * bytes <= static_cast<double>(device.free_bytes());
}

/// Returns the number of values per sample over which a normalisation computes each statistic; 0
/// for other operations.
std::int64_t values_per_statistic(const OpDesc& desc) {
  if (const auto* batch = std::get_if<BatchNormDesc>(&desc); batch && batch->batch_statistics) {
    return batch->shape.h * batch->shape.w;
  }
  if (const auto* group = std::get_if<GroupNormDesc>(&desc)) {
    return group->shape.elements() / group->groups;
  }
  return 0;
}

/// Returns the number of samples that are not zero.
std::int64_t live_samples(const OpDesc& desc, std::int64_t batch, bool saves_time) {
  const std::int64_t usual = std::min<std::int64_t>(batch, saves_time ? 1 : 2);
  if (!std::holds_alternative<BatchNormDesc>(desc) || values_per_statistic(desc) == 0) return usual;
  // The variance of few values may be near 0, and the results ill-conditioned. Training itself
  // never normalises fewer than two values.
  constexpr std::int64_t kFewest = 16;
  const std::int64_t each = values_per_statistic(desc);
  return std::max(usual, (kFewest + each - 1) / each);
}

/// Returns the batch size with which the device runs the operation: `live` if its kernels do not
/// depend on the batch. Otherwise, a GPU runs the whole batch, or `live` if it lacks the memory. A
/// CPU runs the smallest of the sizes live, 2 live, ... that has the same kernels as the whole
/// batch.
std::int64_t batch_on_device(Backend& backend, const OpDesc& desc, std::int64_t live,
                             std::int64_t batch) {
  if (!depends_on_batch(desc) || live >= batch) return live;
  const std::unique_ptr<Op> whole = backend.make(with_batch(desc, batch));
  if (backend.info().queues) {
    const Maths one = reference::maths_of(with_batch(desc, 1));
    return fits(backend, *whole, one, batch, type_of(desc)) ? batch : live;
  }
  std::int64_t least = live;
  while (least < batch &&
         backend.make(with_batch(desc, least))->implementation() != whole->implementation()) {
    least = std::min(2 * least, batch);
  }
  return least;
}

/// Returns the parameters. The fourth parameter of a normalisation is its variance.
Params params_for(TestValues& source, const Maths& maths) {
  Params params;
  for (const std::size_t count : maths.params) params.push_back(source.dense(count));
  if (params.size() == 4) {
    for (double& each : params[3]) each = 0.5 + std::abs(each);
  }
  return params;
}

/// Returns true if training runs backward of the operation. It does not if the operation gives no
/// gradients.
bool has_backward(const OpDesc& desc, const Maths& maths) {
  const bool is_training = std::visit(
      [](const auto& d) {
        if constexpr (requires { d.training; }) return d.training;
        return true;
      },
      desc);
  const bool has_params = std::any_of(maths.params.begin(), maths.params.end(),
                                      [](std::size_t count) { return count > 0; });
  return is_training && (maths.input_gradient || has_params);
}

/// Returns true if bf16 kernels may round a value in the middle of the operation: a sum before its
/// bias is added, or the gradient between a pool and its convolution.
bool rounds_twice(const OpDesc& desc) {
  const auto* conv = std::get_if<Conv2dDesc>(&desc);
  const auto* transposed = std::get_if<ConvTranspose2dDesc>(&desc);
  return (conv && conv->pool) || (transposed && transposed->bias);
}

/// Returns the allowed difference. It covers the expected rounding: of sums in fp32 that lose only
/// a few bits, of operands to tf32 (2^-11), and of results to bf16 (2^-9).
Bound bound_of(const OpDesc& desc, const Maths& maths) {
  const bool tf32 = std::visit(
      [](const auto& d) {
        if constexpr (requires { d.tf32; }) return d.tf32;
        return false;
      },
      desc);
  Bound bound;
  const bool bf16 = type_of(desc) == DType::bf16;
  bound.relative = bf16 ? (rounds_twice(desc) ? 8e-3 : 4e-3) : tf32 ? 1e-3 : 1e-5;
  // Backward computes the slope from the rounded output. For tanh, the slope 1 - y^2 errs by up to
  // 2^-8.
  if (bf16 && std::holds_alternative<ActivationDesc>(desc)) bound.least = 2;
  bound.terms = std::max(maths.x, maths.y);
  // A group of few values may have a variance near 0, which gives large terms that cancel.
  const bool is_group = std::holds_alternative<GroupNormDesc>(desc);
  if (is_group && values_per_statistic(desc) < 64) bound.least = 30;
  return bound;
}

}  // namespace

OperationCheck check_operation(Backend& backend, const OpDesc& desc, bool exact) {
  const std::int64_t batch = std::visit([](const auto& d) { return d.batch; }, desc);
  const OpDesc checked = limited(desc);
  const bool saves_time = !backend.info().queues && is_large(checked);
  const std::int64_t live = live_samples(checked, batch, saves_time);
  const std::int64_t device_batch = batch_on_device(backend, checked, live, batch);
  const OpDesc small = with_batch(checked, live);

  const Maths maths = reference::maths_of(small);
  const ProductCosts costs = costs_of(small);
  Bound bound = bound_of(small, maths);
  TestValues source(1);
  const Values x = std::holds_alternative<ActivationDesc>(small)
                       ? source.wide(maths.x)
                       : values_for(source, maths.x, costs.x_channels, costs.per_x);
  const Params params = params_for(source, maths);
  Values y = maths.forward(x, params);
  const bool backward = has_backward(small, maths);
  std::optional<Derivatives> gradients;
  Values dy;
  if (backward) {
    dy = values_for(source, maths.y, costs.y_channels, costs.per_dy);
    if (std::holds_alternative<BatchNormDesc>(small)) {
      // Zeros as from a ReLU's backward, for kernels that run that backward themselves.
      for (std::size_t i = 0; i < dy.size(); i += 5) dy[i] = 0;
    }
    clear_undecided(small, x, params, bound.relative, dy);
    gradients = maths.backward(x, params, dy);
  }
  OperationRun run(backend, with_batch(checked, device_batch), maths, live, device_batch);
  run.set(x, params);
  if (run.op().backward_rounds_transforms()) bound.of_gradients = 3;
  const std::vector<Values> want = run.expected(std::move(y), dy, std::move(gradients));
  OperationCheck result{operation_text(checked), run.op().implementation(), {}, {}, 0};
  compare(run, dy, {backward, exact, !saves_time}, want, bound, result);
  return result;
}

}  // namespace dpt
