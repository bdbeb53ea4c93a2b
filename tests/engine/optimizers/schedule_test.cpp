// Schedules against closed forms and against values of torch.optim.lr_scheduler.
#include "engine/optimizers/schedule.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/engine/optimizers/support.h"

namespace dpt {
namespace {

TrainSpec run(const std::string& type, std::int64_t epochs,
              std::initializer_list<std::pair<const char*, PlainValue>> values = {}) {
  TrainSpec spec;
  spec.train.epochs = epochs;
  spec.lr_schedule = make_variant(schedule_table(), type, values);
  REQUIRE(check_of(spec.lr_schedule) == "");
  return spec;
}

TEST_CASE("the table's names and hints") {
  std::vector<std::string> names;
  for (const ObjectTable* table : schedule_table().alternatives) names.push_back(table->name);
  CHECK(names == std::vector<std::string>{"constant", "step", "multistep", "cosine"});
  for (const auto& [other, ours] : schedule_table().hints) {
    CHECK_NOTHROW(alternative(schedule_table(), ours));
  }
}

TEST_CASE("constant") {
  const LrSchedule schedule = make_lr_schedule(run("constant", 3), 0.2, 10);
  for (std::int64_t step : {0, 1, 29, 1000}) CHECK(schedule(step) == 0.2);
}

TEST_CASE("step drops at the epochs where StepLR does") {
  const LrSchedule schedule =
      make_lr_schedule(run("step", 9, {{"step_size", std::int64_t{2}}, {"gamma", 0.5}}), 1.0, 4);
  CHECK(schedule(0) == 1.0);
  CHECK(schedule(7) == 1.0);
  CHECK(schedule(8) == 0.5);
  CHECK(schedule(15) == 0.5);
  CHECK(schedule(16) == 0.25);
  CHECK(schedule(35) == 0.0625);
}

TEST_CASE("multistep drops at its milestones as MultiStepLR does") {
  const LrSchedule schedule = make_lr_schedule(
      run("multistep", 10, {{"milestones", std::vector<std::int64_t>{2, 5}}}), 1.0, 3);
  CHECK(schedule(5) == 1.0);
  CHECK(schedule(6) == 0.1);
  CHECK(schedule(14) == 0.1);
  CHECK(schedule(15) == doctest::Approx(0.01).epsilon(1e-15));
  CHECK(schedule(29) == doctest::Approx(0.01).epsilon(1e-15));
}

TEST_CASE("cosine goes from lr to min_lr, half way at half time, and stays there") {
  const LrSchedule schedule = make_lr_schedule(run("cosine", 10, {{"min_lr", 0.1}}), 0.9, 10);
  CHECK(schedule(0) == 0.9);
  CHECK(schedule(50) == doctest::Approx(0.5).epsilon(1e-14));
  CHECK(schedule(25) == doctest::Approx(0.1 + 0.8 * (1 + std::sqrt(0.5)) / 2).epsilon(1e-14));
  CHECK(schedule(100) == doctest::Approx(0.1).epsilon(1e-14));
  CHECK(schedule(1000) == schedule(100));
  for (std::int64_t step = 0; step < 100; ++step) CHECK(schedule(step + 1) < schedule(step));
  // CosineAnnealingLR(T_max=10) of PyTorch, base 0.1, third epoch: 0.07938926261462367.
  CHECK(make_lr_schedule(run("cosine", 10), 0.1, 1)(3) ==
        doctest::Approx(0.07938926261462367).epsilon(1e-14));
}

TEST_CASE("warm-up in steps multiplies the schedule, as LinearLR") {
  TrainSpec spec = run("constant", 2);
  spec.warmup.steps = 4;
  spec.warmup.start_factor = 0.25;
  const LrSchedule schedule = make_lr_schedule(spec, 0.8, 10);
  CHECK(schedule(0) == doctest::Approx(0.2).epsilon(1e-15));
  CHECK(schedule(1) == doctest::Approx(0.35).epsilon(1e-15));
  CHECK(schedule(2) == doctest::Approx(0.5).epsilon(1e-15));
  CHECK(schedule(3) == doctest::Approx(0.65).epsilon(1e-15));
  CHECK(schedule(4) == 0.8);
  CHECK(schedule(19) == 0.8);
}

TEST_CASE("the default warm-up is torch.optim.lr_scheduler.LinearLR's, its first step included") {
  const auto rates = [](std::int64_t steps, std::optional<double> start) {
    TrainSpec spec = run("constant", 1);
    spec.warmup.steps = steps;
    if (start) spec.warmup.start_factor = *start;
    const LrSchedule schedule = make_lr_schedule(spec, 0.6, 7);
    std::vector<double> all;
    for (std::int64_t step = 0; step < 7; ++step) all.push_back(schedule(step));
    return all;
  };
  // What PyTorch 2.15 gives for LinearLR(SGD(lr=0.6), ...), stepped after each of seven updates.
  const auto check = [](const std::vector<double>& ours, const std::vector<double>& torch) {
    REQUIRE(ours.size() == torch.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      CHECK(ours[i] == doctest::Approx(torch[i]).epsilon(1e-14));
    }
  };
  // LinearLR(optimizer): start_factor=1/3, total_iters=5.
  check(rates(5, {}), {0.19999999999999998, 0.28, 0.36000000000000004, 0.4400000000000001,
                       0.5200000000000001, 0.6000000000000001, 0.6000000000000001});
  check(rates(4, {}), {0.19999999999999998, 0.3, 0.4, 0.5, 0.6, 0.6, 0.6});
  check(rates(4, 0.25), {0.15, 0.2625, 0.375, 0.48750000000000004, 0.6000000000000001,
                         0.6000000000000001, 0.6000000000000001});
  // Only what is asked for trains at rate 0.
  CHECK(rates(5, {})[0] > 0);
  CHECK(rates(5, 0.0)[0] == 0);
}

TEST_CASE("the cosine runs over the steps after warm-up") {
  TrainSpec spec = run("cosine", 3);
  spec.warmup.epochs = 1;
  spec.warmup.start_factor = 0;
  const LrSchedule schedule = make_lr_schedule(spec, 0.4, 10);
  CHECK(schedule(0) == 0.0);
  CHECK(schedule(5) == doctest::Approx(0.2).epsilon(1e-15));
  CHECK(schedule(10) == 0.4);
  CHECK(schedule(20) == doctest::Approx(0.2).epsilon(1e-14));
  CHECK(schedule(30) == doctest::Approx(0.0));
}

TEST_CASE("warm-up in fractions of an epoch, and one longer than the run") {
  TrainSpec spec = run("step", 2, {{"step_size", std::int64_t{1}}, {"gamma", 0.5}});
  spec.warmup.epochs = 0.5;
  spec.warmup.start_factor = 0;
  const LrSchedule half = make_lr_schedule(spec, 1.0, 4);
  CHECK(half(0) == 0.0);
  CHECK(half(1) == 0.5);
  CHECK(half(2) == 1.0);
  CHECK(half(4) == 0.5);

  TrainSpec longer = run("cosine", 1);
  longer.warmup.steps = 100;
  longer.warmup.start_factor = 0;
  const LrSchedule rising = make_lr_schedule(longer, 1.0, 10);
  CHECK(rising(9) == doctest::Approx(0.09).epsilon(1e-15));
}

TEST_CASE("what cannot be a schedule is refused") {
  const auto text = [](const std::string& type,
                       std::initializer_list<std::pair<const char*, PlainValue>> values) {
    return check_of(make_variant(schedule_table(), type, values));
  };
  CHECK(text("multistep", {{"milestones", std::vector<std::int64_t>{5, 5}}}) ==
        "milestones: expected epochs above 0, increasing, found 5 after 5");
  CHECK(text("multistep", {{"milestones", std::vector<std::int64_t>{0}}}) ==
        "milestones: expected epochs above 0, increasing, found 0");
  CHECK_THROWS_WITH_AS(
      make_lr_schedule(run("cosine", 1, {{"min_lr", 0.5}}), 0.1, 10),
      "test.yaml:7:3: lr_schedule: expected a min_lr of at most the optimizer's lr (0.1), found "
      "0.5",
      Error);
  // As large as the learning rate: it stays what it is.
  const LrSchedule flat = make_lr_schedule(run("cosine", 1, {{"min_lr", 0.1}}), 0.1, 10);
  for (std::int64_t step : {0, 5, 10}) CHECK(flat(step) == doctest::Approx(0.1).epsilon(1e-15));
}

}  // namespace
}  // namespace dpt
