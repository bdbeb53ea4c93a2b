// Options of the schedule `plateau`. Its decisions are made in engine/training/plateau.h.
#pragma once

#include "engine/schedules/schedule.h"

namespace dpt {

enum class ThresholdMode : std::uint8_t { rel, abs };
constexpr auto enum_names(ThresholdMode) {
  return std::to_array<EnumName<ThresholdMode>>(
      {{ThresholdMode::rel, "rel"}, {ThresholdMode::abs, "abs"}});
}

/// Options with the meaning of torch.optim.lr_scheduler.ReduceLROnPlateau's arguments.
struct PlateauOptions {
  std::string monitor = "val/loss";
  Direction mode = Direction::min;  ///< default: the monitor's
  double factor = 0.1;
  std::int64_t patience = 10;
  double threshold = 1e-4;
  ThresholdMode threshold_mode = ThresholdMode::rel;
  std::int64_t cooldown = 0;
  double min_lr = 0.0;
  double eps = 1e-8;
  double smoothing = 0.0;
};

/// Returns the options of `plateau`; null if the schedule is another.
const PlateauOptions* plateau_of(const TrainSpec& spec);

}  // namespace dpt
