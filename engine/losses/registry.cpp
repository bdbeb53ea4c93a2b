// The registry of losses, and the checks that all losses share.
#include "engine/losses/kinds.h"

namespace dpt {
namespace {

/// Throws unless the loss accepts the data's targets and the model has an output for each value.
void check_targets(const LossKind& kind, const LossContext& context) {
  const TargetShape& targets = context.targets;
  if (!takes(kind.targets, targets.kind)) {
    std::vector<std::string> names;
    for (const LossKind& each : loss_kinds()) {
      if (takes(each.targets, targets.kind)) names.push_back(each.table->name);
    }
    fail(ErrorKind::usage,
         "loss: the data's targets are {}: expected one of {}, found {}, which is for {} "
         "(data.target says what the targets are)",
         text_of(targets.kind), fmt::join(names, ", "), kind.table->name, text_of(kind.targets));
  }
  if (targets.kind != TargetKind::class_index && targets.values != context.classes) {
    fail(ErrorKind::usage,
         "model: the data has {} target value{} per sample: expected the last layer to have as "
         "many outputs, found {}",
         targets.values, targets.values == 1 ? "" : "s", context.classes);
  }
}

}  // namespace

const Registry<LossKind>& loss_kinds() {
  const char* with_softmax = "cross_entropy, which takes the log-softmax of the logits itself";
  static const Registry<LossKind> registry(
      "loss", all_losses(),
      {{"CrossEntropyLoss", "cross_entropy"},
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
       {"huber", "smooth_l1"}});
  return registry;
}

Loss make_loss(const Variant& options, const LossContext& context) {
  const LossKind& kind = loss_kinds().at(options.type);
  check_targets(kind, context);
  Loss loss = kind.make(options, context);
  loss.targets = context.targets;
  return loss;
}

void LossShape::fill(LossDesc& desc) const {
  desc.batch = batch;
  desc.classes = classes;
  desc.type = type;
  desc.training = training;
  desc.sums = sums;
}

double Loss::weight_of(std::int32_t label, double own) const {
  if (!counts(label, own)) return 0;
  // Class weights of soft labels are factors in the sample's loss, not in its weight.
  if (class_weights.empty() || targets.kind != TargetKind::class_index) return own;
  return own * static_cast<double>(class_weights[label]);
}

}  // namespace dpt
