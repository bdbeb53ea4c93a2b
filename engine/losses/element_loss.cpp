// Losses that compare each output with its own target, averaged over samples and outputs, like the
// torch.nn losses of the same names with reduction="mean". If samples have only a label, the
// targets are one-hot.
#include <algorithm>
#include <cmath>

#include "engine/losses/kinds.h"

namespace dpt {
namespace {

struct MseOptions {};
struct L1Options {};
struct SmoothL1Options {
  double beta = 1.0;
};
struct BceOptions {
  std::optional<std::vector<double>> pos_weight;
};

Loss make_element_loss(const element_losses::Formula& formula, const LossContext& context,
                       const std::vector<float>& pos_weight = {}) {
  ElementLossDesc desc;
  desc.formula = formula;
  desc.pos_weight = pos_weight;
  desc.targets = context.targets;
  Loss loss;
  loss.has_errors = true;
  loss.compile = [desc](OpFactory& factory, const LossShape& shape) {
    ElementLossDesc here = desc;
    shape.fill(here);
    return factory.make_loss(here);
  };
  return loss;
}

Loss make_mse(const Variant&, const LossContext& context) {
  return make_element_loss(element_losses::Mse{}, context);
}

/// Returns Loss::near_zero for a loss of differences d: d^2 / (2 beta) if d is below beta,
/// otherwise d - beta / 2. The result is the loss after d has shrunk by the factor sqrt(0.02). An
/// mse falls to 2 % when d shrinks by this factor.
double near_zero_difference(double first, double beta) {
  const double difference = first < beta / 2 ? std::sqrt(2 * beta * first) : first + beta / 2;
  const double small = std::sqrt(0.02) * difference;
  return small < beta ? small * small / (2 * beta) : small - beta / 2;
}

Loss make_l1(const Variant&, const LossContext& context) {
  Loss loss = make_element_loss(element_losses::L1{}, context);
  loss.near_zero = [](double first) { return near_zero_difference(first, 0); };
  return loss;
}

Loss make_smooth_l1(const Variant& variant, const LossContext& context) {
  const double beta = variant.as<SmoothL1Options>().beta;
  Loss loss = make_element_loss(element_losses::SmoothL1{static_cast<float>(beta)}, context);
  loss.near_zero = [beta](double first) { return near_zero_difference(first, beta); };
  return loss;
}

/// Returns the minimum of bce_with_logits for one sample. It is reached if the sigmoid of each
/// output is for_one / both.
double least_bce(std::span<const float> targets, const std::vector<float>& pos_weight) {
  double sum = 0;
  for (std::size_t c = 0; c < targets.size(); ++c) {
    const double y = static_cast<double>(targets[c]);
    const double for_one = y * (pos_weight.empty() ? 1.0 : static_cast<double>(pos_weight[c]));
    const double for_zero = 1 - y, both = for_one + for_zero;
    if (for_one > 0) sum -= for_one * std::log(for_one / both);
    if (for_zero > 0) sum -= for_zero * std::log(for_zero / both);
  }
  return sum / static_cast<double>(targets.size());
}

Loss make_bce(const Variant& variant, const LossContext& context) {
  const auto& weights = variant.as<BceOptions>().pos_weight;
  std::vector<float> pos_weight;
  if (weights) {
    if (static_cast<std::int64_t>(weights->size()) != context.classes) {
      fail(ErrorKind::usage,
           "loss.pos_weight: expected {} weight{}, one for each output of the model, found {}",
           context.classes, context.classes == 1 ? "" : "s", weights->size());
    }
    pos_weight.assign(weights->begin(), weights->end());
  }
  Loss loss = make_element_loss(element_losses::BceWithLogits{}, context, pos_weight);
  if (context.targets.values > 0) {
    loss.least = [pos_weight](std::span<const float> targets) {
      return least_bce(targets, pos_weight);
    };
  }
  return loss;
}

}  // namespace

LossKind mse_loss() {
  static const ObjectTable table = object_table<MseOptions>(
      "mse",
      "Squared difference of each output from its target, averaged over samples and outputs, like "
      "MSELoss. The targets come from the data: values, a number for each output. Class labels "
      "become one-hot: 1 for the output of the sample's class, 0 for the others.",
      {});
  return {&table, all_targets(), &make_mse};
}

LossKind l1_loss() {
  static const ObjectTable table =
      object_table<L1Options>("l1", "Like mse, but with absolute differences, as in L1Loss.", {});
  return {&table, all_targets(), &make_l1};
}

LossKind smooth_l1_loss() {
  static const ObjectTable table = object_table<SmoothL1Options>(
      "smooth_l1",
      "Like mse, but with d^2 / (2 beta) for a difference d below beta, and |d| - beta / 2 for a "
      "larger one, as in SmoothL1Loss.",
      {field("beta", &SmoothL1Options::beta,
             "Difference from which the second formula is used instead of the first; with 0, the "
             "loss is l1.")
           .range(0, 1e9)});
  return {&table, all_targets(), &make_smooth_l1};
}

LossKind bce_with_logits_loss() {
  static const ObjectTable table = object_table<BceOptions>(
      "bce_with_logits",
      "Binary cross-entropy of the sigmoid of each output, averaged over samples and outputs, like "
      "BCEWithLogitsLoss. The targets come from the data: multi_hot, a number from 0 to 1 for each "
      "output, which says whether it applies. Class labels become one-hot, as for mse.",
      {field("pos_weight", &BceOptions::pos_weight,
             "A factor for each output's loss where its target is 1.")
           .range(0, 1e9)
           .items(1, 1'000'000)});
  static const TargetKinds kinds = {TargetKind::class_index, TargetKind::soft_labels,
                                    TargetKind::multi_hot};
  return {&table, kinds, &make_bce};
}

}  // namespace dpt
