// The choice of the best result, and early stopping.
#include "engine/job/best.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace dpt;

namespace {

/// Records an epoch with these validation results in `state`. Returns true if it is the best so
/// far.
bool note(const TrainSpec& spec, RunState& state, double accuracy, double loss = 1.0) {
  ++state.epoch;
  state.step += 10;
  state.val_n = 5;
  state.val_accuracy = accuracy;
  state.val_loss = loss;
  return note_epoch(spec, state);
}

}  // namespace

TEST_CASE("the best is the finite value that beats all before it") {
  TrainSpec spec;
  RunState state;
  CHECK_FALSE(note(spec, state, NAN));
  CHECK_FALSE(state.best.has_value());
  CHECK(note(spec, state, 0.5));
  CHECK_FALSE(note(spec, state, 0.5));
  CHECK_FALSE(note(spec, state, INFINITY));
  CHECK_FALSE(note(spec, state, NAN));
  CHECK(state.best == 0.5);
  CHECK(state.best_step == 20);
  CHECK(note(spec, state, 0.6));
  CHECK(state.best_step == 60);
  CHECK(state.best_monitor == "val/accuracy max");

  spec.checkpoint.keep_best.monitor = "val/loss";
  spec.checkpoint.keep_best.mode = Direction::min;
  state = {};
  CHECK_FALSE(note(spec, state, 0.5, -INFINITY));
  CHECK(note(spec, state, 0.1, 2.0));
  CHECK_FALSE(note(spec, state, 0.9, 3.0));
  CHECK(note(spec, state, 0.1, 1.5));
  CHECK(state.best == 1.5);
}

TEST_CASE("patience counts evaluations since the last improvement") {
  TrainSpec spec;
  spec.train.early_stopping.emplace();
  spec.train.early_stopping->patience = 2;
  spec.train.early_stopping->min_delta = 0.1;
  RunState state;
  note(spec, state, NAN);
  CHECK(state.bad_evaluations == 1);
  CHECK_FALSE(state.early_best.has_value());
  note(spec, state, 0.5);
  CHECK(state.bad_evaluations == 0);
  note(spec, state, 0.55);  // better by less than min_delta
  CHECK(state.bad_evaluations == 1);
  CHECK_FALSE(has_stopped_early(spec, state));
  note(spec, state, 0.7);
  CHECK(state.bad_evaluations == 0);
  note(spec, state, 0.7);
  note(spec, state, NAN);
  CHECK(has_stopped_early(spec, state));

  // The evaluations so far were counted for another monitor, so patience starts anew.
  spec.train.early_stopping->monitor = "val/loss";
  spec.train.early_stopping->mode = Direction::min;
  adopt_early_stopping(spec, state);
  CHECK_FALSE(has_stopped_early(spec, state));
  CHECK_FALSE(state.early_best.has_value());
}

TEST_CASE("the better value, its monitor, and splits that have a value") {
  KeepBestSpec keep;
  CHECK(is_better(keep, 0.2, std::nullopt));
  CHECK_FALSE(is_better(keep, NAN, std::nullopt));
  CHECK(is_better(keep, 0.2, 0.1));
  CHECK_FALSE(is_better(keep, 0.2, 0.2));
  keep.mode = Direction::min;
  CHECK_FALSE(is_better(keep, 0.2, 0.1));
  CHECK(is_better(keep, 0.1, 0.2));
  CHECK_FALSE(is_better(keep, 0.2, 0.2));

  RunState state;
  state.epoch = 1;
  state.val_accuracy = 0.7;
  state.val_loss = 2.0;
  CHECK(monitored_value(keep, state) == 0.7);
  keep.monitor = "val/loss";
  CHECK(monitored_value(keep, state) == 2.0);
  // In the middle of an epoch the weights differ from the measured ones.
  state.position = 12;
  CHECK_FALSE(monitored_value(keep, state).has_value());
  state.position = 0;
  state.val_loss.reset();
  CHECK_FALSE(monitored_value(keep, state).has_value());
  state.val_loss = 2.0;
  state.epoch = 0;
  CHECK_FALSE(monitored_value(keep, state).has_value());

  TrainSpec spec;
  CHECK(best_monitor_of(spec) == "val/accuracy max");
  CHECK(early_monitor_of(spec).empty());
  spec.checkpoint.keep_best = keep;
  CHECK(best_monitor_of(spec) == "val/loss min");
}

TEST_CASE("a new best forgets the file of the one before") {
  TrainSpec spec;
  RunState state;
  note(spec, state, 0.5);
  state.best_checksum = "of the first";
  CHECK_FALSE(note(spec, state, 0.4));
  CHECK(state.best_checksum == "of the first");
  CHECK(note(spec, state, 0.6));
  CHECK(state.best_checksum.empty());
}

TEST_CASE("early stopping: min_delta must be exceeded, in the direction of the mode") {
  TrainSpec spec;
  RunState state;
  CHECK_FALSE(has_stopped_early(spec, state));
  spec.train.early_stopping.emplace();
  EarlyStoppingSpec& early = *spec.train.early_stopping;
  early.monitor = "val/loss";
  early.mode = Direction::min;
  early.patience = 3;
  early.min_delta = 0.25;
  note(spec, state, 0.0, 2.0);
  CHECK(state.early_best == 2.0);
  CHECK(state.early_monitor == "val/loss min");
  note(spec, state, 0.0, 1.75);  // better by exactly min_delta
  CHECK(state.bad_evaluations == 1);
  CHECK(state.early_best == 2.0);
  note(spec, state, 0.0, 2.5);
  CHECK(state.bad_evaluations == 2);
  note(spec, state, 0.0, 1.5);
  CHECK(state.bad_evaluations == 0);
  CHECK(state.early_best == 1.5);
  // An epoch without a measurement changes nothing.
  state.bad_evaluations = 2;
  state.val_loss.reset();
  note_epoch(spec, state);
  CHECK(state.bad_evaluations == 2);
  CHECK_FALSE(has_stopped_early(spec, state));
  state.bad_evaluations = 3;
  CHECK(has_stopped_early(spec, state));
}

TEST_CASE("patience on resume: kept for the same monitor and for files that do not name it") {
  TrainSpec spec;
  spec.train.early_stopping.emplace();
  RunState state;
  state.early_best = 0.5;
  state.bad_evaluations = 2;
  adopt_early_stopping(spec, state);
  CHECK(state.bad_evaluations == 2);
  state.early_monitor = "val/accuracy max";
  adopt_early_stopping(spec, state);
  CHECK(state.bad_evaluations == 2);
  CHECK(state.early_best == 0.5);
  spec.train.early_stopping->monitor = "val/loss";
  spec.train.early_stopping->mode = Direction::min;
  adopt_early_stopping(spec, state);
  CHECK(state.bad_evaluations == 0);
  CHECK_FALSE(state.early_best.has_value());
  CHECK(state.early_monitor == "val/loss min");
}

TEST_CASE("smoothing: an exponential average whose first value counts in full") {
  double sum = 0, weight = 0;
  CHECK(smoothed(0.6, 2.0, sum, weight) == doctest::Approx(2.0).epsilon(1e-15));
  // (0.4 * 0.6 * 2 + 0.4 * 5) / (1 - 0.6 ^ 2)
  CHECK(smoothed(0.6, 5.0, sum, weight) == doctest::Approx(2.48 / 0.64).epsilon(1e-15));
  const double before = sum;
  CHECK(std::isnan(smoothed(0.6, NAN, sum, weight)));
  CHECK(smoothed(0.6, INFINITY, sum, weight) == INFINITY);
  CHECK(sum == before);
  CHECK(smoothed(0.6, 1.0, sum, weight) ==
        doctest::Approx((0.6 * 2.48 + 0.4) / 0.784).epsilon(1e-15));
  // The average of a constant is that constant.
  sum = weight = 0;
  for (int i = 0; i < 100; ++i) {
    CHECK(smoothed(0.9, 0.3, sum, weight) == doctest::Approx(0.3).epsilon(1e-14));
  }
}

TEST_CASE("a smoothed best is not the lucky value") {
  TrainSpec spec;
  spec.checkpoint.keep_best.smoothing = 0.5;
  CHECK(best_monitor_of(spec) == "val/accuracy max (smoothing 0.5)");
  RunState state;
  CHECK(note(spec, state, 0.5));
  CHECK_FALSE(note(spec, state, NAN));
  CHECK(note(spec, state, 0.9));  // average 0.575 / 0.75
  CHECK(state.best == doctest::Approx(0.575 / 0.75).epsilon(1e-15));
  CHECK_FALSE(note(spec, state, 0.6));  // better than the first, but the average falls
  CHECK(monitored_value(spec.checkpoint.keep_best, state) ==
        doctest::Approx((0.575 / 2 + 0.3) / 0.875).epsilon(1e-15));
  CHECK(note(spec, state, 0.9));  // the same value once more raises the average
  CHECK(state.best_step == 50);

  // Changed smoothing restarts the average.
  KeepBestSpec other = spec.checkpoint.keep_best;
  other.smoothing = 0.25;
  CHECK(monitored_value(other, state) == 0.9);
  other.smoothing = 0;
  CHECK(monitored_value(other, state) == 0.9);
  spec.checkpoint.keep_best.smoothing = 0.25;
  state.best.reset();
  CHECK(note(spec, state, 0.1));
  CHECK(state.best == doctest::Approx(0.1).epsilon(1e-15));
  spec.checkpoint.keep_best.smoothing = 0;
  CHECK(note(spec, state, 0.3));
  CHECK(state.best == 0.3);
  CHECK(state.best_average_of.empty());
  CHECK(state.best_weight == 0);
}

TEST_CASE("smoothed patience, which a resume with other smoothing restarts") {
  TrainSpec spec;
  spec.train.early_stopping.emplace();
  spec.train.early_stopping->smoothing = 0.5;
  RunState state;
  note(spec, state, 0.5);
  CHECK(state.early_monitor == "val/accuracy max (smoothing 0.5)");
  note(spec, state, 0.8);
  CHECK(state.early_best == doctest::Approx(0.525 / 0.75).epsilon(1e-15));
  note(spec, state, 0.6);
  CHECK(state.bad_evaluations == 1);
  note(spec, state, 0.79);  // below 0.8, but the average rises
  CHECK(state.bad_evaluations == 0);
  RunState same = state;
  adopt_early_stopping(spec, same);
  CHECK(same.early_sum == state.early_sum);
  spec.train.early_stopping->smoothing = 0;
  adopt_early_stopping(spec, state);
  CHECK_FALSE(state.early_best.has_value());
  CHECK(state.early_sum == 0);
  CHECK(state.early_weight == 0);
  note(spec, state, 0.3);
  CHECK(state.early_best == 0.3);
}
