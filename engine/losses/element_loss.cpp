// Losses of each output and its target, averaged over samples and outputs, as torch.nn's with
// reduction="mean". Data sources give class labels: the targets are one-hot.
#include <algorithm>
#include <cmath>

#include "engine/losses/loss.h"

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

Loss make_element_loss(const ElementLossDesc& desc) {
  Loss loss;
  loss.has_errors = true;
  loss.compile = [desc](OpFactory& factory, const LossShape& shape) {
    ElementLossDesc here = desc;
    shape.fill(here);
    return factory.element_loss(here);
  };
  return loss;
}

template <ElementLossKind kKind>
Loss make_plain(const Variant&, const LossContext&) {
  ElementLossDesc desc;
  desc.kind = kKind;
  return make_element_loss(desc);
}

/// Loss::near_zero where the loss of a difference d is d^2 / (2 beta) below beta and d - beta / 2
/// above: what it is when the differences have become as small as those of an mse that has fallen
/// to 2 %.
double near_zero_difference(double first, double beta) {
  const double difference = first < beta / 2 ? std::sqrt(2 * beta * first) : first + beta / 2;
  const double small = std::sqrt(0.02) * difference;
  return small < beta ? small * small / (2 * beta) : small - beta / 2;
}

Loss make_l1(const Variant&, const LossContext&) {
  ElementLossDesc desc;
  desc.kind = ElementLossKind::l1;
  Loss loss = make_element_loss(desc);
  loss.near_zero = [](double first) { return near_zero_difference(first, 0); };
  return loss;
}

Loss make_smooth_l1(const Variant& variant, const LossContext&) {
  ElementLossDesc desc;
  desc.kind = ElementLossKind::smooth_l1;
  const double beta = variant.as<SmoothL1Options>().beta;
  desc.beta = static_cast<float>(beta);
  Loss loss = make_element_loss(desc);
  loss.near_zero = [beta](double first) { return near_zero_difference(first, beta); };
  return loss;
}

Loss make_bce(const Variant& variant, const LossContext& context) {
  const auto& weights = variant.as<BceOptions>().pos_weight;
  ElementLossDesc desc;
  desc.kind = ElementLossKind::bce_with_logits;
  if (weights) {
    if (static_cast<std::int64_t>(weights->size()) != context.classes) {
      fail(ErrorKind::usage,
           "loss.pos_weight: expected {} weights, one for each output of the model, found {}",
           context.classes, weights->size());
    }
    desc.pos_weight.assign(weights->begin(), weights->end());
  }
  return make_element_loss(desc);
}

}  // namespace

template <>
LossKind loss_kind<class Mse>() {
  static const ObjectTable table = object_table<MseOptions>(
      "mse",
      "Squared difference of each output from its target, averaged over samples and outputs, as "
      "MSELoss. Data sources give class labels, so that targets are one-hot: 1 for the output of "
      "the sample's class, 0 for the others.",
      {});
  return {&table, &make_plain<ElementLossKind::mse>};
}

template <>
LossKind loss_kind<class L1>() {
  static const ObjectTable table =
      object_table<L1Options>("l1", "As mse, but of absolute differences: L1Loss.", {});
  return {&table, &make_l1};
}

template <>
LossKind loss_kind<class SmoothL1>() {
  static const ObjectTable table = object_table<SmoothL1Options>(
      "smooth_l1",
      "As mse, but d^2 / (2 beta) of differences below beta, and |d| - beta / 2 of larger ones: "
      "SmoothL1Loss.",
      {field("beta", &SmoothL1Options::beta, "Where the one becomes the other; 0 is l1.")
           .range(0, 1e9)});
  return {&table, &make_smooth_l1};
}

template <>
LossKind loss_kind<class BceWithLogits>() {
  static const ObjectTable table = object_table<BceOptions>(
      "bce_with_logits",
      "Binary cross-entropy of the sigmoid of each output, averaged over samples and outputs, as "
      "BCEWithLogitsLoss. Targets are one-hot, as of mse.",
      {field("pos_weight", &BceOptions::pos_weight,
             "A factor for each output's loss where its target is 1.")
           .range(0, 1e9)
           .items(1, 1'000'000)});
  return {&table, &make_bce};
}

}  // namespace dpt
