// Schedules: their field tables and formulas. Each is a closed form, so a resumed run needs nothing
// but its step.
#include "engine/optimizers/schedule.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>

namespace dpt {
namespace {

struct ConstantOptions {};

struct StepOptions {
  std::int64_t step_size = 0;
  double gamma = 0.1;
};

struct MultistepOptions {
  std::vector<std::int64_t> milestones;
  double gamma = 0.1;
};

struct CosineOptions {
  double min_lr = 0.0;
};

const ObjectTable& constant_table() {
  static const ObjectTable table =
      object_table<ConstantOptions>("constant", "The optimizer's learning rate throughout.", {});
  return table;
}

const ObjectTable& step_table() {
  static const ObjectTable table = object_table<StepOptions>(
      "step", "Multiplies the learning rate by gamma every step_size epochs, as StepLR.",
      {field("step_size", &StepOptions::step_size, "Epochs between two decays.")
           .required()
           .at_least(1),
       field("gamma", &StepOptions::gamma, "Factor of each decay.").above(0)});
  return table;
}

const ObjectTable& multistep_table() {
  static const ObjectTable table = object_table<MultistepOptions>(
      "multistep", "Multiplies the learning rate by gamma at each milestone, as MultiStepLR.",
      {field("milestones", &MultistepOptions::milestones,
             "Epochs (counted from 0, increasing) that begin with a decay.")
           .required(),
       field("gamma", &MultistepOptions::gamma, "Factor of each decay.").above(0)},
      +[](const MultistepOptions& options) -> std::string {
        std::int64_t before = 0;
        for (std::int64_t milestone : options.milestones) {
          if (milestone <= before) {
            return fmt::format("milestones: expected epochs above 0, increasing, found {}{}",
                               milestone, before > 0 ? fmt::format(" after {}", before) : "");
          }
          before = milestone;
        }
        return {};
      });
  return table;
}

const ObjectTable& cosine_table() {
  static const ObjectTable table = object_table<CosineOptions>(
      "cosine",
      "Cosine annealing from lr to min_lr over the steps after the warm-up, until the end of "
      "train.epochs: changing the number of epochs changes the curve, also when a run is resumed.",
      {field("min_lr", &CosineOptions::min_lr, "The learning rate at the end.").at_least(0)});
  return table;
}

LrSchedule make_unwarmed(const TrainSpec& spec, double base_lr, std::int64_t steps_per_epoch,
                         std::int64_t warmup_steps) {
  const Variant& variant = spec.lr_schedule;
  if (variant.type == "step") {
    const StepOptions options = variant.as<StepOptions>();
    return [=](std::int64_t step) {
      const std::int64_t drops = step / steps_per_epoch / options.step_size;
      return base_lr * std::pow(options.gamma, static_cast<double>(drops));
    };
  }
  if (variant.type == "multistep") {
    const MultistepOptions options = variant.as<MultistepOptions>();
    return [=](std::int64_t step) {
      const auto& milestones = options.milestones;
      const auto passed =
          std::upper_bound(milestones.begin(), milestones.end(), step / steps_per_epoch);
      return base_lr * std::pow(options.gamma, static_cast<double>(passed - milestones.begin()));
    };
  }
  if (variant.type == "cosine") {
    const double min_lr = variant.as<CosineOptions>().min_lr;
    if (min_lr > base_lr) {
      fail(ErrorKind::usage,
           "{}: lr_schedule: expected a min_lr of at most the optimizer's lr ({}), found {}",
           variant.where.text(), base_lr, min_lr);
    }
    const std::int64_t total = spec.train.epochs * steps_per_epoch;
    const std::int64_t length = std::max<std::int64_t>(1, total - warmup_steps);
    return [=](std::int64_t step) {
      const std::int64_t done = std::clamp<std::int64_t>(step - warmup_steps, 0, length);
      const double angle =
          std::numbers::pi * static_cast<double>(done) / static_cast<double>(length);
      return min_lr + (base_lr - min_lr) * (1.0 + std::cos(angle)) / 2.0;
    };
  }
  assert(variant.type == "constant" && "the reader admits only names of schedule_table()");
  return [=](std::int64_t) { return base_lr; };
}

}  // namespace

const VariantTable& schedule_table() {
  static const VariantTable table = [] {
    VariantTable made;
    made.what = "lr_schedule";
    made.alternatives = {&constant_table(), &step_table(), &multistep_table(), &cosine_table()};
    made.hints = {{"ConstantLR", "constant"},
                  {"fixed", "constant"},
                  {"none", "constant"},
                  {"StepLR", "step"},
                  {"StepDecay", "step"},
                  {"MultiStepLR", "multistep"},
                  {"PiecewiseConstantDecay", "multistep"},
                  {"CosineAnnealingLR", "cosine"},
                  {"CosineDecay", "cosine"}};
    return made;
  }();
  return table;
}

LrSchedule make_lr_schedule(const TrainSpec& spec, double base_lr, std::int64_t steps_per_epoch) {
  assert(steps_per_epoch >= 1);
  const WarmupSpec& warmup = spec.warmup;
  const std::int64_t warmup_steps =
      warmup.steps > 0 ? warmup.steps
                       : std::llround(warmup.epochs * static_cast<double>(steps_per_epoch));
  LrSchedule schedule = make_unwarmed(spec, base_lr, steps_per_epoch, warmup_steps);
  if (warmup_steps <= 0) return schedule;
  const double start = warmup.start_factor;
  return [=](std::int64_t step) {
    if (step >= warmup_steps) return schedule(step);
    const double share = static_cast<double>(step) / static_cast<double>(warmup_steps);
    return schedule(step) * (start + (1.0 - start) * share);
  };
}

}  // namespace dpt
