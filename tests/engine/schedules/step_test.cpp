// `step` and `multistep`.
#include "tests/engine/schedules/support.h"
#include "tests/engine/schedules/torch_rates.h"

namespace dpt {
namespace {

TEST_CASE("step drops at the epochs where StepLR does") {
  const OptionValues options = {{"step_size", std::int64_t{2}}, {"gamma", 0.5}};
  const LrSchedule schedule = make_lr_schedule(scheduled("step", 9, options), 1.0, 4);
  CHECK(schedule(0) == 1.0);
  CHECK(schedule(7) == 1.0);
  CHECK(schedule(8) == 0.5);
  CHECK(schedule(15) == 0.5);
  CHECK(schedule(16) == 0.25);
  CHECK(schedule(35) == 0.0625);
  check_epochs(make_lr_schedule(scheduled("step", 9, options), 0.3, 4), 4, torch_rates::step);
}

TEST_CASE("step by steps") {
  const TrainSpec spec =
      scheduled("step", 9, {{"step_size", std::int64_t{2}}, {"gamma", 0.5}, {"by", "step"}});
  check_rates(make_lr_schedule(spec, 0.3, 4), torch_rates::step);
}

TEST_CASE("multistep drops at its milestones as MultiStepLR does") {
  const std::vector<std::int64_t> milestones = {2, 5};
  const LrSchedule schedule =
      make_lr_schedule(scheduled("multistep", 10, {{"milestones", milestones}}), 1.0, 3);
  CHECK(schedule(5) == 1.0);
  CHECK(schedule(6) == 0.1);
  CHECK(schedule(14) == 0.1);
  CHECK(schedule(15) == doctest::Approx(0.01).epsilon(1e-15));
  CHECK(schedule(29) == doctest::Approx(0.01).epsilon(1e-15));
  check_epochs(make_lr_schedule(scheduled("multistep", 10, {{"milestones", milestones}}), 0.3, 3),
               3, torch_rates::multistep);
  const TrainSpec by_step =
      scheduled("multistep", 10, {{"milestones", milestones}, {"by", "step"}});
  check_rates(make_lr_schedule(by_step, 0.3, 3), torch_rates::multistep);
}

TEST_CASE("milestones that do not increase are refused") {
  const auto text = [](std::vector<std::int64_t> milestones, const char* by) {
    return check_of(make_variant(schedule_kinds().table(), "multistep",
                                 {{"milestones", std::move(milestones)}, {"by", by}}));
  };
  CHECK(text({5, 5}, "epoch") ==
        "milestones: expected epochs above 0, increasing, found 5 after 5");
  CHECK(text({0}, "epoch") == "milestones: expected epochs above 0, increasing, found 0");
  CHECK(text({0}, "step") == "milestones: expected steps above 0, increasing, found 0");
}

}  // namespace
}  // namespace dpt
