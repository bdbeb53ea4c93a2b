#include "engine/checkpoints/state_checks.h"

#include <cmath>
#include <optional>

#include <fmt/ranges.h>

#include "kernels/base/error.h"

namespace dpt {
namespace {

// Limits far above the values of any run. They keep every sum and product of counters far below 64
// bits.
constexpr std::int64_t kMaxSteps = std::int64_t{1} << 40;
constexpr std::int64_t kMaxEpochs = 1'000'000;
constexpr std::int64_t kMaxShards = 65536;
constexpr std::int64_t kLargestDeviceWeight = 1 << 20;

struct Checker {
  const std::string& path;

  void whole(const char* key, std::int64_t found, std::int64_t low, std::int64_t high,
             const std::string& why = {}) const {
    if (low <= found && found <= high) return;
    fail(ErrorKind::data, "{}: metadata 'dpt.{}': expected an integer from {} to {}{}, found {}",
         path, key, low, high, why, found);
  }
  void number(const char* key, double found, double high, const std::string& why) const {
    if (std::isfinite(found) && 0 <= found && found <= high) return;
    fail(ErrorKind::data, "{}: metadata 'dpt.{}': expected {}, found {}", path, key, why, found);
  }
  /// Checks a sum. It may be non-finite, because steps add in fp32, which may overflow.
  void sum(const char* key, double found) const {
    if (std::isnan(found) || 0 <= found) return;
    fail(ErrorKind::data, "{}: metadata 'dpt.{}': expected sums of at least 0, found {}", path, key,
         found);
  }
  void finite(const char* key, double found) const {
    if (std::isfinite(found)) return;
    fail(ErrorKind::data, "{}: metadata 'dpt.{}': expected a finite number, found {}", path, key,
         found);
  }
  /// Checks ScheduleSegments: the first begins at 0, and each ends at or before the beginning of
  /// the next.
  void segments(const std::vector<std::int64_t>& found) const {
    bool good = found.size() % 2 == 0 && (found.empty() || found[0] == 0);
    for (std::size_t i = 0; good && i < found.size(); i += 2) {
      good = 0 <= found[i] && found[i] <= kMaxEpochs && 0 <= found[i + 1] &&
             found[i + 1] <= kMaxEpochs;
      if (good && i + 2 < found.size()) {
        good = found[i + 1] > 0 && found[i] + found[i + 1] <= found[i + 2];
      }
    }
    if (good) return;
    fail(ErrorKind::data,
         "{}: metadata 'dpt.schedule_segments': expected the start and length, in epochs, of each "
         "segment, in order and from 0, found {}",
         path, fmt::join(found, ","));
  }
  /// Checks a factor on the learning rate.
  void scale(const char* key, double found) const {
    if (0 < found && found <= 1) return;
    fail(ErrorKind::data,
         "{}: metadata 'dpt.{}': expected a number above 0 and at most 1, found {}", path, key,
         found);
  }
  /// Checks a result, which may be missing; the loss of a diverged network may be non-finite.
  void result(const char* key, const std::optional<double>& found, double high,
              const char* what) const {
    if (!found || std::isnan(*found) || (0 <= *found && *found <= high)) return;
    fail(ErrorKind::data, "{}: metadata 'dpt.{}': expected {}, found {}", path, key, what, *found);
  }
};

}  // namespace

void check_state(const std::string& path, const CheckpointHeader& header) {
  const RunState& state = header.state;
  const Checker check{path};
  check.whole("step", state.step, 0, kMaxSteps);
  check.whole("epoch", state.epoch, 0, kMaxEpochs);
  check.whole("position", state.position, 0, kMaxSteps);
  check.whole("best_step", state.best_step, 0, state.step, " ('dpt.step')");
  check.whole("bad_evaluations", state.bad_evaluations, 0, state.epoch, " ('dpt.epoch')");
  check.number("epoch_loss_sum", state.epoch_loss_sum, HUGE_VAL, "a finite sum of at least 0");
  check.number("epoch_correct", state.epoch_correct, static_cast<double>(state.position),
               fmt::format("a count from 0 to {} ('dpt.position')", state.position));
  check.number("epoch_weight", state.epoch_weight, HUGE_VAL, "a finite sum of at least 0");
  check.number("epoch_labelled", state.epoch_labelled, static_cast<double>(state.position),
               fmt::format("a count from 0 to {} ('dpt.position')", state.position));
  for (const double sum : state.epoch_sums) check.sum("epoch_sums", sum);
  check.whole("shards", header.shards, 0, kMaxShards);
  check.whole("epoch_skipped", state.epoch_skipped, 0, state.position, " ('dpt.position')");
  check.whole("skipped_steps", state.skipped_steps, 0, state.step, " ('dpt.step')");
  check.whole("skipped_in_row", state.skipped_in_row, 0, state.skipped_steps,
              " ('dpt.skipped_steps')");
  // An epoch may be averaged before it counts in `epoch`.
  check.whole("averaged", state.averaged, 0, state.epoch + 1, " ('dpt.epoch' + 1)");
  check.whole("rollbacks", state.rollbacks, 0, kMaxSteps);
  check.whole("rollback_step", state.rollback_step, -1, state.step, " ('dpt.step')");
  check.whole("rollback_candidate", state.rollback_candidate, -1, state.step, " ('dpt.step')");
  check.scale("lr_scale", state.lr_scale);
  check.scale("plateau_scale", state.plateau_scale);
  check.segments(state.schedule_segments);
  check.finite("best_sum", state.best_sum);
  check.finite("early_sum", state.early_sum);
  check.finite("plateau_sum", state.plateau_sum);
  check.number("best_weight", state.best_weight, 1, "a weight from 0 to 1");
  check.number("early_weight", state.early_weight, 1, "a weight from 0 to 1");
  check.number("plateau_weight", state.plateau_weight, 1, "a weight from 0 to 1");
  check.whole("plateau_bad", state.plateau_bad, 0, state.epoch, " ('dpt.epoch')");
  check.whole("plateau_cooldown", state.plateau_cooldown, 0, kMaxSteps);
  check.whole("val_n", state.val_n, 0, kMaxSteps);
  check.result("train_loss", state.train_loss, HUGE_VAL, "a loss of at least 0");
  check.result("val_loss", state.val_loss, HUGE_VAL, "a loss of at least 0");
  check.result("train_accuracy", state.train_accuracy, 1, "an accuracy from 0 to 1");
  check.result("val_accuracy", state.val_accuracy, 1, "an accuracy from 0 to 1");
  if (state.device_weights.empty()) return;
  if (state.device_weights.size() != header.devices.size()) {
    fail(ErrorKind::data,
         "{}: metadata 'dpt.device_weights': expected a number for each of the {} devices in "
         "'dpt.devices', found {}",
         path, header.devices.size(), state.device_weights.size());
  }
  for (const std::int64_t weight : state.device_weights) {
    check.whole("device_weights", weight, 1, kLargestDeviceWeight, " each");
  }
}

}  // namespace dpt
