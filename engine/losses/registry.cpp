// All losses: one line each.
#include <algorithm>
#include <array>
#include <cassert>

#include "engine/losses/loss.h"

namespace dpt {

constexpr LossKind (*kKinds[])() = {
    &loss_kind<class CrossEntropy>,   //
    &loss_kind<class BceWithLogits>,  //
    &loss_kind<class Mse>,            //
    &loss_kind<class L1>,             //
    &loss_kind<class SmoothL1>,       //
};

std::span<const LossKind> loss_kinds() {
  static const auto kinds = [] {
    std::array<LossKind, std::size(kKinds)> made{};
    std::transform(std::begin(kKinds), std::end(kKinds), made.begin(),
                   [](LossKind (*kind)()) { return kind(); });
    return made;
  }();
  return kinds;
}

const VariantTable& loss_table() {
  static const VariantTable table = [] {
    VariantTable made;
    made.what = "loss";
    for (const LossKind& kind : loss_kinds()) made.alternatives.push_back(kind.table);
    const char* with_softmax = "cross_entropy, which takes the log-softmax of the logits itself";
    made.hints = {{"CrossEntropyLoss", "cross_entropy"},
                  {"CrossEntropy", "cross_entropy"},
                  {"crossentropy", "cross_entropy"},
                  {"softmax", "cross_entropy"},
                  {"nll", with_softmax},
                  {"nll_loss", with_softmax},
                  {"NLLLoss", with_softmax},
                  {"bce", "bce_with_logits"},
                  {"BCEWithLogitsLoss", "bce_with_logits"},
                  {"BCELoss", "bce_with_logits, which takes the sigmoid of the outputs itself"},
                  {"MSELoss", "mse"},
                  {"l2", "mse"},
                  {"L1Loss", "l1"},
                  {"mae", "l1"},
                  {"SmoothL1Loss", "smooth_l1"},
                  {"huber", "smooth_l1"}};
    return made;
  }();
  return table;
}

Loss make_loss(const Variant& options, const LossContext& context) {
  const auto kinds = loss_kinds();
  const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const LossKind& each) {
    return each.table->name == options.type;
  });
  assert(kind != kinds.end() && "the reader admits only names of loss_table()");
  return kind->make(options, context);
}

void LossShape::fill(LossDesc& desc) const {
  desc.batch = batch;
  desc.classes = classes;
  desc.type = type;
  desc.training = training;
  desc.sums = sums;
}

double Loss::weight_of(std::int32_t label) const {
  if (!counts(label)) return 0;
  if (class_weights.empty()) return 1;
  return static_cast<double>(class_weights[static_cast<std::size_t>(label)]);
}

}  // namespace dpt
