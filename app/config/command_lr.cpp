// dpt config lr: shows the learning rate over the run of a config. Uses no device.
#include "app/config/command_lr.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/base/catalog.h"
#include "app/config/lr_chart.h"
#include "app/config/lr_curve.h"
#include "datasets/dataset.h"
#include "engine/config/read_spec.h"
#include "engine/data/data_sets.h"
#include "engine/data/splits.h"
#include "engine/graph/make_plan.h"
#include "engine/graph/plan.h"
#include "engine/job/job.h"
#include "engine/optimizers/optimizer.h"
#include "engine/schedules/plateau.h"
#include "kernels/base/divide.h"
#include "kernels/base/json_text.h"
#include "kernels/base/text.h"

namespace dpt {
namespace {

/// Returns the number of training samples, without those held out for validation.
std::int64_t training_samples(const TrainSpec& spec, std::int64_t given) {
  if (given > 0) {
    const std::int64_t held_out = held_out_count(spec.data.val_split, given);
    if (given > held_out) return given - held_out;
    fail(ErrorKind::usage,
         "--samples {}: expected more samples than data.val_split holds out ({}): give the total "
         "number of samples in the training files",
         given, held_out);
  }
  try {
    const DataSets sets = open_dataset(spec.data.dataset, data_requirements(spec, make_plan(spec)));
    return make_splits(sets, spec.data.val_split, static_cast<std::uint64_t>(spec.seed))
        .train.size();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    throw Error(ErrorKind::data,
                fmt::format("{}\nThe steps of an epoch follow from the number of training samples. "
                            "If the data is not available, give that number: --samples N",
                            error.what()));
  }
}

std::string heading(const LrOptions& options, const TrainSpec& spec, const LrCurve& curve,
                    std::int64_t samples) {
  std::string text = fmt::format("{}: {}", options.config, spec.lr_schedule.type);
  if (curve.warmup_steps > 0) {
    text += ", after a warm-up of " + counted(curve.warmup_steps, "step");
  }
  text += fmt::format(": {}, {} of {} ({} in batches of {})\n", counted(curve.steps(), "step"),
                      counted(curve.epochs, "epoch"), curve.steps_per_epoch,
                      counted(samples, "sample"), spec.data.batch_size);
  if (const PlateauOptions* plateau = plateau_of(spec)) {
    text += fmt::format(
        "These are the highest possible rates: plateau multiplies them by {:g} each time {} stops "
        "improving.\n",
        plateau->factor, plateau->monitor);
  }
  return text;
}

std::string table(const LrCurve& curve, const std::vector<std::int64_t>& rows) {
  std::string text = fmt::format("{:>8} {:>10} {:>12}\n", "epoch", "step", "lr");
  for (const std::int64_t step : rows) {
    text += fmt::format("{:>8} {:>10} {:>12.6g}\n", step / curve.steps_per_epoch + 1, step + 1,
                        curve.schedule(step));
  }
  return text;
}

nlohmann::json as_json(const TrainSpec& spec, const LrCurve& curve,
                       const std::vector<std::int64_t>& rows) {
  nlohmann::json rates = nlohmann::json::array();
  for (const std::int64_t step : rows) {
    rates.push_back({{"epoch", step / curve.steps_per_epoch + 1},
                     {"step", step + 1},
                     {"lr", curve.schedule(step)}});
  }
  return {{"schedule", spec.lr_schedule.type},
          {"epochs", curve.epochs},
          {"steps_per_epoch", curve.steps_per_epoch},
          {"steps", curve.steps()},
          {"warmup_steps", curve.warmup_steps},
          {"depends_on_results", plateau_of(spec) != nullptr},
          {"rates", rates}};
}

}  // namespace

int run_config_lr(const LrOptions& options) {
  const TrainSpec spec = load_spec(catalog(), options.config, options.overrides);
  const std::int64_t samples = training_samples(spec, options.samples);
  LrCurve curve;
  curve.epochs = spec.train.epochs;
  curve.steps_per_epoch = ceil_div(samples, spec.data.batch_size);
  curve.warmup_steps = warmup_steps_of(spec, curve.steps_per_epoch);
  curve.schedule = make_lr_schedule(spec, make_optimizer(spec.optimizer).lr, curve.steps_per_epoch);
  const std::vector<std::int64_t> rows = rows_of(curve, options.rows);
  if (options.json) {
    fmt::print("{}\n", json_text(as_json(spec, curve, rows)));
  } else {
    fmt::print("{}{}", heading(options, spec, curve, samples),
               options.plot ? text_chart(curve) : table(curve, rows));
  }
  return 0;
}

}  // namespace dpt
