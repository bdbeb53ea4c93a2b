// All schedules together, and the warm-up that each of them may have.
#include <optional>

#include "tests/engine/schedules/support.h"

namespace dpt {
namespace {

TEST_CASE("the table's names and hints") {
  std::vector<std::string> names;
  for (const ScheduleKind& kind : schedule_kinds()) names.push_back(kind.table->name);
  CHECK(names == std::vector<std::string>{"constant", "step", "multistep", "exponential",
                                          "polynomial", "linear", "cosine", "cosine_restarts",
                                          "one_cycle", "inverse_sqrt", "wsd", "plateau"});
  for (const auto& [other, ours] : schedule_kinds().table().hints) {
    CHECK_NOTHROW(alternative(schedule_kinds().table(), ours));
  }
}

TEST_CASE("warm-up in steps multiplies the schedule, as LinearLR") {
  TrainSpec spec = scheduled("constant", 2);
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
    TrainSpec spec = scheduled("constant", 1);
    spec.warmup.steps = steps;
    if (start) spec.warmup.start_factor = *start;
    return make_lr_schedule(spec, 0.6, 7);
  };
  // The values of PyTorch 2.15 for LinearLR(SGD(lr=0.6), ...), stepped after each of seven updates.
  const auto check = [](const LrSchedule& ours, const std::vector<double>& torch) {
    check_rates(ours, torch);
  };
  // The reference is LinearLR(optimizer): start_factor=1/3, total_iters=5.
  check(rates(5, {}), {0.19999999999999998, 0.28, 0.36000000000000004, 0.4400000000000001,
                       0.5200000000000001, 0.6000000000000001, 0.6000000000000001});
  check(rates(4, {}), {0.19999999999999998, 0.3, 0.4, 0.5, 0.6, 0.6, 0.6});
  check(rates(4, 0.25), {0.15, 0.2625, 0.375, 0.48750000000000004, 0.6000000000000001,
                         0.6000000000000001, 0.6000000000000001});
  // The rate is 0 only if requested.
  CHECK(rates(5, {})(0) > 0);
  CHECK(rates(5, 0.0)(0) == 0);
}

TEST_CASE("warm-up in fractions of an epoch, and one longer than the run") {
  TrainSpec spec = scheduled("step", 2, {{"step_size", std::int64_t{1}}, {"gamma", 0.5}});
  spec.warmup.epochs = 0.5;
  spec.warmup.start_factor = 0;
  const LrSchedule half = make_lr_schedule(spec, 1.0, 4);
  CHECK(half(0) == 0.0);
  CHECK(half(1) == 0.5);
  CHECK(half(2) == 1.0);
  CHECK(half(4) == 0.5);

  TrainSpec longer = scheduled("cosine", 1);
  longer.warmup.steps = 100;
  longer.warmup.start_factor = 0;
  const LrSchedule rising = make_lr_schedule(longer, 1.0, 10);
  CHECK(rising(9) == doctest::Approx(0.09).epsilon(1e-15));
}

TEST_CASE("segments: a schedule that is held, and one that begins again with its warm-up") {
  TrainSpec spec = scheduled("linear", 9,
                             {{"start_factor", 1.0},
                              {"end_factor", 0.0},
                              {"total_iters", std::int64_t{0}},
                              {"by", "step"}});
  const auto rate = [&](const ScheduleSegments& segments, std::int64_t step) {
    return make_lr_schedule(spec, 1.0, 10, segments)(step);
  };
  const auto near = [](double value) { return doctest::Approx(value).epsilon(1e-14); };
  for (const std::int64_t step : {0, 44, 89}) CHECK(rate({}, step) == rate({0, 0}, step));
  // The schedule runs for four epochs and is then held for the remaining five.
  CHECK(rate({0, 4}, 20) == near(0.5));
  CHECK(rate({0, 4}, 39) == near(1.0 / 40));
  CHECK(rate({0, 4}, 40) == near(1.0 / 40));
  CHECK(rate({0, 4}, 89) == near(1.0 / 40));
  // Four epochs, then a restart over five.
  CHECK(rate({0, 4, 4, 0}, 39) == near(1.0 / 40));
  CHECK(rate({0, 4, 4, 0}, 40) == 1.0);
  CHECK(rate({0, 4, 4, 0}, 65) == near(0.5));
  CHECK(rate({0, 4, 4, 0}, 90) == near(0.0));
  // Held between the two cycles.
  CHECK(rate({0, 2, 4, 5}, 39) == near(1.0 / 20));
  CHECK(rate({0, 2, 4, 5}, 40) == 1.0);
  spec.warmup.steps = 5;
  spec.warmup.start_factor = 0.5;
  CHECK(rate({0, 4, 4, 0}, 40) == 0.5);
  CHECK(rate({0, 4, 4, 0}, 45) == 1.0);
}

}  // namespace
}  // namespace dpt
