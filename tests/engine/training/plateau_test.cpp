// The schedule `plateau`: its decisions equal PyTorch's, and it survives resumes and rollbacks.
#include "engine/training/plateau.h"

#include <doctest/doctest.h>

#include <cmath>

#include "engine/job/starting_point.h"
#include "engine/schedules/plateau.h"
#include "tests/engine/schedules/support.h"
#include "tests/engine/schedules/torch_rates.h"
#include "tests/engine/training/poisoned.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

TrainSpec plateau_spec(OptionValues options) {
  TrainSpec spec = scheduled("plateau", 100, options);
  spec.data.val_split.count = 10;
  return spec;
}

std::optional<LrReduction> evaluate_as(const TrainSpec& spec, RunState& state, double value) {
  ++state.epoch;
  state.step += 10;
  state.val_n = 10;
  state.val_loss = state.val_accuracy = value;
  return note_plateau(spec, 0.3, 10, state);
}

/// Checks the learning rate after each monitored value.
void check_plateau(OptionValues options, std::span<const double> torch) {
  const TrainSpec spec = plateau_spec(options);
  const LrSchedule schedule = make_lr_schedule(spec, 0.3, 10);
  RunState state;
  for (std::size_t i = 0; i < torch.size(); ++i) {
    CAPTURE(i);
    const double before = 0.3 * state.plateau_scale;
    const auto reduction = evaluate_as(spec, state, torch_rates::plateau_values[i]);
    const double lr = schedule(state.step) * state.plateau_scale;
    CHECK(lr == doctest::Approx(torch[i]).epsilon(1e-14));
    CHECK(reduction.has_value() == (lr != before));
    if (reduction) {
      CHECK(reduction->from == before);
      CHECK(reduction->to == lr);
    }
  }
}

constexpr std::int64_t whole(std::int64_t value) {
  return value;
}

/// A schedule that lowers the rate after every second epoch from the second on, whatever the
/// results.
constexpr const char* kImpatient =
    "lr_schedule={type: plateau, factor: 0.5, patience: 0, threshold: 1.0e+300, threshold_mode: "
    "abs, cooldown: 1, smoothing: 0.3, warmup: {steps: 3}}";

}  // namespace

TEST_CASE("plateau reduces when ReduceLROnPlateau does, NaN included") {
  check_plateau({{"patience", whole(2)}}, torch_rates::plateau);
  check_plateau({{"factor", 0.5},
                 {"patience", whole(1)},
                 {"threshold", 0.05},
                 {"threshold_mode", "abs"},
                 {"cooldown", whole(2)},
                 {"min_lr", 0.03}},
                torch_rates::plateau_all);
  check_plateau({{"monitor", "val/accuracy"},
                 {"mode", "max"},
                 {"factor", 0.5},
                 {"patience", whole(3)},
                 {"threshold", 0.01}},
                torch_rates::plateau_max);
  check_plateau({{"patience", whole(0)}, {"eps", 0.01}}, torch_rates::plateau_eps);
}

TEST_CASE("plateau: its reports") {
  const TrainSpec spec = plateau_spec({{"patience", whole(1)}});
  RunState state;
  CHECK_FALSE(evaluate_as(spec, state, 2.0));
  CHECK_FALSE(evaluate_as(spec, state, 2.5));
  const auto reduction = evaluate_as(spec, state, 2.25);
  REQUIRE(reduction.has_value());
  CHECK(reduction->value == 2.25);
  CHECK(reduction->best == 2.0);
  CHECK(reduction->evaluations == 2);
  // Without results the schedule decides nothing.
  state.plateau_bad = 1;
  state.val_loss.reset();
  CHECK_FALSE(note_plateau(spec, 0.3, 10, state));
  CHECK(state.plateau_bad == 1);
  // Other schedules ignore the results, too.
  CHECK_FALSE(evaluate_as(scheduled("constant", 9), state, NAN));
  CHECK(state.plateau_bad == 1);
}

TEST_CASE("plateau: nothing that is not finite is a best value, and the rate never becomes zero") {
  const TrainSpec spec = plateau_spec({{"monitor", "val/accuracy"},
                                       {"mode", "max"},
                                       {"patience", whole(0)},
                                       {"eps", 0.0},
                                       {"factor", 1e-300}});
  RunState state;
  for (const double value : std::vector<double>{INFINITY, -INFINITY, NAN}) {
    evaluate_as(spec, state, value);
    CHECK_FALSE(state.plateau_best.has_value());
  }
  CHECK(state.plateau_scale == 1e-300);
}

TEST_CASE("plateau: an epoch within the warm-up may improve, but does not count against") {
  TrainSpec spec = plateau_spec({{"patience", whole(0)}});
  spec.warmup.epochs = 2;
  RunState state;
  evaluate_as(spec, state, 1.0);
  CHECK(state.plateau_best == 1.0);
  CHECK_FALSE(evaluate_as(spec, state, 2.0));  // the last step of the warm-up
  CHECK(state.plateau_bad == 0);
  CHECK(evaluate_as(spec, state, 2.0).has_value());
}

TEST_CASE("plateau looks at the average where smoothing is asked for") {
  const TrainSpec spec = plateau_spec({{"patience", whole(0)}, {"smoothing", 0.5}});
  RunState state;
  CHECK_FALSE(evaluate_as(spec, state, 2.0));
  CHECK_FALSE(evaluate_as(spec, state, 1.0));
  CHECK(state.plateau_best == doctest::Approx(1.0 / 0.75).epsilon(1e-15));
  CHECK_FALSE(evaluate_as(spec, state, 1.2));  // worse, but below the average
  const auto reduction = evaluate_as(spec, state, 1.5);
  REQUIRE(reduction.has_value());
  CHECK(reduction->value == doctest::Approx((1.1 / 2 + 0.75) / 0.9375).epsilon(1e-15));
}

TEST_CASE("settings that plateau refuses") {
  const auto text = [](OptionValues options) {
    return check_of(make_variant(schedule_kinds().table(), "plateau", options));
  };
  CHECK(text({{"factor", 1.0}}) == "factor: expected a number below 1, found 1");
  CHECK(text({{"monitor", "val/accuracy"}}) ==
        "expected mode: max with monitor: val/accuracy, found min");
  CHECK(refusal(scheduled("plateau", 3), 0.1, 10) ==
        "test.yaml:7:3: lr_schedule: plateau monitors val/loss, but there are no validation "
        "samples: set data.val_split");
  CHECK(refusal(plateau_spec({{"min_lr", 0.5}}), 0.1, 10) ==
        "test.yaml:7:3: lr_schedule: expected a min_lr of at most the optimizer's lr (0.1), found "
        "0.5");
}

TEST_CASE("a run lowers its rate and says so, on any replicas, stopped anywhere") {
  const auto job = [](int replicas) {
    return small_job(small_config(kSgd, 5),
                     {cpus(replicas), "train.shards=8", "log.every=1", kImpatient,
                      "checkpoint.keep_best.smoothing=0.8",
                      "train.early_stopping={monitor: val/loss, patience: 9, smoothing: 0.5}"});
  };
  const TempDir folder;
  const FinalState one = train_small(job(1), folder.path());
  CHECK(one.step == 25);
  const RunState end = checkpoint_of(job(1), folder, 25).state;

  const auto reductions = events(folder, "lr_reduced");
  REQUIRE(reductions.size() == 2);
  const double rates[] = {0.05, 0.025, 0.0125};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& event = reductions[i];
    CHECK(event["epoch"] == 2 + 2 * i);
    CHECK(event["step"] == 10 + 10 * i);
    CHECK(event["monitor"] == "val/loss");
    CHECK(event["evaluations"] == 1);
    CHECK(event["from"] == rates[i]);
    CHECK(event["lr"] == rates[i + 1]);
    const double first = events(folder, "eval")[0]["loss"];
    CHECK(event["best"] == doctest::Approx(first).epsilon(1e-15));
    CHECK(event["value"] != event["best"]);
  }
  for (const auto& step : events(folder, "step")) {
    const std::int64_t at = step["step"];
    if (at > 3) CHECK(step["lr"] == rates[at <= 10 ? 0 : at <= 20 ? 1 : 2]);
  }
  CHECK(checkpoint_of(job(1), folder, 10).state.plateau_scale == 0.5);
  CHECK(checkpoint_of(job(1), folder, 10).state.plateau_cooldown == 1);

  for (std::int64_t stop = 1; stop < 25; stop += kSanitized ? 9 : 1) {
    CAPTURE(stop);
    const TempDir other;
    train_small(job(static_cast<int>(stop % 3) + 1), other.path(), nullptr, stop);
    const Job rest = job(static_cast<int>(stop % 2) + 1);
    const StartingPoint start = checkpoint_of(rest, other, stop);
    CHECK((train_small(rest, other.path(), &start) == one));
    const RunState state = checkpoint_of(rest, other, 25).state;
    CHECK(state.best == end.best);
    CHECK(state.best_step == end.best_step);
    CHECK(state.best_sum == end.best_sum);
    CHECK(state.early_best == end.early_best);
    CHECK(state.early_sum == end.early_sum);
    CHECK(state.early_weight == end.early_weight);
    CHECK(state.plateau_sum == end.plateau_sum);
    CHECK(state.plateau_best == end.plateau_best);
  }
}

TEST_CASE("a rollback takes the reductions since then back, and multiplies the rest") {
  const auto job = [](int replicas) {
    return small_job(
        small_config(kExploding, 6),
        {cpus(replicas), "train.shards=8", "log.every=1", kImpatient, "checkpoint.every_steps=0",
         "train.on_divergence.policy=rollback", "train.on_divergence.lr_factor=0.01"});
  };
  const TempDir folder;
  const FinalState one = train_small(job(2), folder.path());
  CHECK(one.step == 30);
  REQUIRE(events(folder, "rollback").size() == 1);
  const std::int64_t back = events(folder, "rollback")[0]["step"];
  // The run repeated reductions after the rollback, but the log lists each of them only once.
  const auto reductions = events(folder, "lr_reduced");
  double scale = 1;
  for (const auto& event : reductions) {
    scale *= 0.5;
    const double lr_scale = event["step"].get<std::int64_t>() > back ? 0.01 : 1.0;
    CHECK(event["lr"] == doctest::Approx(100 * scale * lr_scale).epsilon(1e-12));
  }
  CHECK(reductions.size() == 3);
  CHECK(events(folder, "step").back()["lr"] == doctest::Approx(100 * 0.01 / 4).epsilon(1e-12));
  const RunState end = checkpoint_of(job(1), folder, 30).state;
  CHECK(end.plateau_scale == 0.125);
  CHECK(end.lr_scale == 0.01);
  CHECK((train_small(job(3), TempDir().path()) == one));
}
