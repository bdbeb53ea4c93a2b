// What counts as the best, and when patience ends.
#include "engine/training/best.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace dpt;

namespace {

/// The state after an epoch with these validation results.
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

  spec.checkpoint.keep_best.monitor = Monitor::val_loss;
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

  // Counted by another monitor: not this one's patience.
  spec.train.early_stopping->monitor = Monitor::val_loss;
  spec.train.early_stopping->mode = Direction::min;
  adopt_early_stopping(spec, state);
  CHECK_FALSE(has_stopped_early(spec, state));
  CHECK_FALSE(state.early_best.has_value());
}
