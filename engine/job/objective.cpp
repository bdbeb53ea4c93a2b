#include "engine/job/objective.h"

#include <utility>

#include "engine/data/host_options.h"
#include "engine/data/mixing.h"
#include "engine/data/split.h"
#include "engine/data/splits.h"
#include "engine/data/transform_kinds.h"
#include "engine/schedules/plateau.h"

namespace dpt {
namespace {

/// Checks that the targets of the test samples have the same shape as those of the training
/// samples.
void check_test_targets(const Splits& splits) {
  if (!splits.test.source) return;
  const TargetShape train = splits.train.source->targets(), test = splits.test.source->targets();
  if (train == test) return;
  const auto text = [](const TargetShape& shape) {
    std::string line = text_of(shape.kind);
    if (shape.values > 0) line += fmt::format(", {} per sample", shape.values);
    return line + (shape.weighted ? ", and a weight" : "");
  };
  fail(ErrorKind::data, "{}: expected targets like those of the training samples ({}), found {}",
       splits.test.source->describe(0), text(train), text(test));
}

/// Throws because targets of this kind have no accuracy that `section` could monitor.
[[noreturn]] void refuse_accuracy(const std::string& section, TargetKind kind) {
  fail(ErrorKind::usage,
       "{}.monitor: val/accuracy needs class labels, but the data's targets are {}: use val/loss, "
       "or val/NAME with a metric from `metrics`",
       section, text_of(kind));
}

}  // namespace

Objective make_objective(const TrainSpec& spec, std::int64_t outputs, const Splits& splits) {
  check_test_targets(splits);
  const DataSource& source = *splits.train.source;
  if (has_labels(source.targets().kind) && outputs < 2) {
    fail(ErrorKind::usage,
         "model: the data's targets are {}: expected one output of the last layer per class, at "
         "least 2, found {}",
         text_of(source.targets().kind), outputs);
  }
  LossContext context;
  context.classes = outputs;
  context.class_names = source.classes();
  context.class_counts = [&] { return class_counts(splits.train, outputs); };
  context.targets = source.targets();
  Objective made;
  made.loss = make_loss(spec.loss, context);
  made.metrics = make_metrics(
      spec.metrics, {outputs, spec.loss.type, made.loss.has_errors, context.targets.kind});
  made.loss.sums = made.metrics.sums;
  made.mixed_loss = make_mixed_loss(spec, std::move(context), made.loss);
  if (made.mixed_loss) made.mixed_loss->sums = made.metrics.sums;
  return made;
}

std::optional<Loss> make_mixed_loss(const TrainSpec& spec, LossContext context, const Loss& loss) {
  const std::vector<Variant>& mixings = spec.data.transforms.batch;
  if (mixings.empty()) return std::nullopt;
  const std::string place = place_of(mixings.front());
  if (context.targets.weighted) {
    fail(ErrorKind::usage,
         "{}: expected samples without weights, found some with weights: a mixed sample would "
         "combine two weights",
         place);
  }
  if (loss.ignore_index) {
    fail(ErrorKind::usage,
         "{}: a mixed sample combines two labels, so neither can be ignored: expected no "
         "loss.ignore_index, found {}",
         place, *loss.ignore_index);
  }
  for (const Variant& each : mixings) {
    if (context.targets.kind != TargetKind::values ||
        !batch_transform_kinds().at(each.type).mixes_areas) {
      continue;
    }
    fail(ErrorKind::usage,
         "{}: the data's targets are {}, which do not belong to parts of an image: expected MixUp, "
         "which mixes whole images",
         place_of(each), text_of(TargetKind::values));
  }
  context.targets = mixed_targets(context.targets, context.classes);
  return make_loss(spec.loss, context);
}

void adopt_targets(TrainSpec& spec, const DataSource& source) {
  const TargetKind kind = source.targets().kind;
  if (has_accuracy(kind)) return;
  const auto adopt = [&](const std::string& path, auto& part) {
    if (part.monitor != "val/accuracy") return;
    if (spec.origins.contains(path + ".monitor")) refuse_accuracy(path, kind);
    if (spec.origins.contains(path + ".mode") && part.mode != Direction::min) {
      fail(ErrorKind::usage,
           "{0}.mode: the data's targets are {1}, which have no accuracy, so {0}.monitor is "
           "val/loss: expected mode: min, found max",
           path, text_of(kind));
    }
    part.monitor = "val/loss";
    part.mode = Direction::min;
  };
  adopt("checkpoint.keep_best", spec.checkpoint.keep_best);
  if (spec.train.early_stopping) adopt("train.early_stopping", *spec.train.early_stopping);
  // The plateau monitors val/loss by default, so only an explicit accuracy is wrong.
  const PlateauOptions* plateau = plateau_of(spec);
  if (plateau && plateau->monitor == "val/accuracy") refuse_accuracy("lr_schedule", kind);
}

}  // namespace dpt
