// Cross-entropy of the softmax, with class labels or soft labels, like torch.nn.CrossEntropyLoss.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/losses/kinds.h"

namespace dpt {
namespace {

struct CrossEntropyOptions {
  double label_smoothing = 0.0;
  std::optional<std::vector<double>> class_weights;  ///< unset: all 1; empty: balanced
  std::optional<std::int64_t> ignore_index;
};

const ObjectTable& cross_entropy_table() {
  using S = CrossEntropyOptions;
  static const ObjectTable table = object_table<S>(
      "cross_entropy",
      "Cross-entropy (natural logarithm) of the softmax of the logits with class labels or soft "
      "labels, like CrossEntropyLoss. The mean is over the whole batch: the sum of the samples' "
      "losses over the sum of their weights.",
      {field("label_smoothing", &S::label_smoothing,
             "Fraction of the target that is spread evenly over all classes.")
           .range(0, 1),
       field("class_weights", &S::class_weights,
             "The weight of each class, like CrossEntropyLoss's `weight`. balanced: n / (number of "
             "classes * samples of the class), where n is the number of training samples. The "
             "losses of validation and test are weighted in the same way. With soft labels, each "
             "class's part of the loss is multiplied by its weight, and the mean is over the "
             "number of samples; balanced counts each sample for its most probable class.")
           .range(0, 1e9)
           .items(1, 1'000'000)
           .zero_as("balanced"),
       field("ignore_index", &S::ignore_index,
             "Samples with this label, counted from 0, count neither in the loss nor in the "
             "metrics. Not for soft labels.")
           .at_least(0)},
      [](const S& s) -> std::string {
        const auto& w = s.class_weights;
        if (!w || w->empty() || std::any_of(w->begin(), w->end(), [](double x) { return x > 0; })) {
          return {};
        }
        return "class_weights: expected a weight above 0, found none";
      });
  return table;
}

/// Returns the balanced weights of the classes that are not ignored, like scikit-learn's
/// compute_class_weight.
std::vector<float> balanced_weights(const LossContext& context,
                                    const std::optional<std::int64_t>& ignored) {
  std::vector<std::int64_t> counts = context.class_counts();
  if (ignored) counts[*ignored] = 0;
  const std::int64_t n = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const auto classes = static_cast<double>(context.classes - (ignored ? 1 : 0));
  std::vector<float> weights(counts.size(), 0.0F);
  for (std::size_t c = 0; c < counts.size(); ++c) {
    if (ignored && static_cast<std::int64_t>(c) == *ignored) continue;
    if (counts[c] == 0) {
      fail(ErrorKind::usage,
           "loss.class_weights: balanced gives no weight to class {}, which has no training "
           "samples; write the weights as a list, one for each of the {} classes",
           c < context.class_names.size() ? fmt::format("{} ({})", c, context.class_names[c])
                                          : fmt::format("{}", c),
           context.classes);
    }
    weights[c] =
        static_cast<float>(static_cast<double>(n) / (classes * static_cast<double>(counts[c])));
  }
  return weights;
}

/// Returns the minimum loss of one sample with soft labels. It is reached if the softmax is
/// proportional to target * weight.
double least_soft(std::span<const float> targets, const std::vector<float>& weights) {
  double mass = 0, sum = 0;
  for (std::size_t c = 0; c < targets.size(); ++c) {
    const double part =
        static_cast<double>(targets[c]) * (weights.empty() ? 1.0 : static_cast<double>(weights[c]));
    if (part <= 0) continue;
    mass += part;
    sum += part * std::log(part);
  }
  return mass > 0 ? mass * std::log(mass) - sum : 0;
}

Loss make_cross_entropy(const Variant& variant, const LossContext& context) {
  const auto& options = variant.as<CrossEntropyOptions>();
  const bool soft = context.targets.kind == TargetKind::soft_labels;
  Loss loss;
  if (options.ignore_index && soft) {
    fail(ErrorKind::usage,
         "loss.ignore_index: soft labels have no label to ignore: expected no ignore_index, found "
         "{}; to ignore a sample, give it the weight 0",
         *options.ignore_index);
  }
  if (options.ignore_index) {
    if (*options.ignore_index >= context.classes) {
      fail(ErrorKind::usage,
           "loss.ignore_index: expected a label from 0 to {} (the model has {} outputs), found {}",
           context.classes - 1, context.classes, *options.ignore_index);
    }
    loss.ignore_index = static_cast<std::int32_t>(*options.ignore_index);
  }
  if (options.class_weights && options.class_weights->empty()) {
    loss.class_weights = balanced_weights(context, options.ignore_index);
  } else if (options.class_weights) {
    loss.class_weights.assign(options.class_weights->begin(), options.class_weights->end());
    if (static_cast<std::int64_t>(loss.class_weights.size()) != context.classes) {
      fail(ErrorKind::usage,
           "loss.class_weights: expected {} weights, one for each output of the model, found {}",
           context.classes, loss.class_weights.size());
    }
  }
  // 2 % of the loss of a model that finds all classes equally likely. The initial loss is not used,
  // because initial weights may be better or worse than such a model.
  loss.near_zero = [classes = std::max<std::int64_t>(context.classes, 2)](double) {
    return 0.02 * std::log(static_cast<double>(classes));
  };
  CrossEntropyDesc desc;
  desc.label_smoothing = static_cast<float>(options.label_smoothing);
  desc.class_weights = loss.class_weights;
  desc.ignore_index = loss.ignore_index;
  desc.targets = context.targets;
  if (soft) {
    loss.least = [weights = loss.class_weights](std::span<const float> targets) {
      return least_soft(targets, weights);
    };
  }
  const auto compile = [](const CrossEntropyDesc& as) -> Loss::Compile {
    return [as](OpFactory& factory, const LossShape& shape) {
      CrossEntropyDesc here = as;
      shape.fill(here);
      return factory.make_loss(here);
    };
  };
  loss.compile = compile(desc);
  if (desc.label_smoothing > 0) {
    desc.label_smoothing = 0;
    loss.compile_unsmoothed = compile(desc);
  }
  return loss;
}

}  // namespace

LossKind cross_entropy_loss() {
  return {&cross_entropy_table(), labelled_targets(), &make_cross_entropy};
}

}  // namespace dpt
