#include "tests/engine/schedules/support.h"
#include "tests/engine/schedules/torch_rates.h"

namespace dpt {
namespace {

TEST_CASE("one_cycle, in PyTorch's variants") {
  // Four epochs of five steps. max_lr replaces the optimizer's lr.
  const auto check = [](OptionValues options, std::span<const double> torch) {
    check_rates(make_lr_schedule(scheduled("one_cycle", 4, options), 0.1, 5), torch);
  };
  check({{"max_lr", 0.5}}, torch_rates::one_cycle);
  check({{"max_lr", 0.5},
         {"anneal_strategy", "linear"},
         {"pct_start", 0.25},
         {"div_factor", 10.0},
         {"final_div_factor", 100.0}},
        torch_rates::one_cycle_linear);
  check({{"max_lr", 0.5}, {"three_phase", true}, {"pct_start", 0.4}},
        torch_rates::one_cycle_three_phase);
  check({{"max_lr", 0.5}, {"pct_start", 0.02}}, torch_rates::one_cycle_no_rise);
}

TEST_CASE("one_cycle peaks at the optimizer's lr where max_lr is not given") {
  const LrSchedule schedule = make_lr_schedule(scheduled("one_cycle", 4), 0.5, 5);
  check_rates(schedule, torch_rates::one_cycle);
  CHECK(schedule(20) == schedule(19));
}

TEST_CASE("one_cycle by epochs") {
  const TrainSpec spec = scheduled("one_cycle", 20, {{"by", "epoch"}});
  check_epochs(make_lr_schedule(spec, 0.5, 3), 3, torch_rates::one_cycle);
}

TEST_CASE("one_cycle of one step, and with a rise of one: finite, at the phase's end") {
  const LrSchedule one = make_lr_schedule(scheduled("one_cycle", 1), 0.5, 1);
  CHECK(one(0) == doctest::Approx(0.5 / 25 / 1e4).epsilon(1e-14));
  const LrSchedule at_once =
      make_lr_schedule(scheduled("one_cycle", 1, {{"pct_start", 0.1}}), 0.5, 10);
  CHECK(at_once(0) == 0.5);
  CHECK(at_once(1) < 0.5);
}

TEST_CASE("settings that one_cycle refuses") {
  CHECK(check_of(make_variant(schedule_kinds().table(), "one_cycle",
                              {{"three_phase", true}, {"pct_start", 0.6}})) ==
        "pct_start: expected at most 0.5 with three_phase: true, found 0.6");
  TrainSpec warmed = scheduled("one_cycle", 4);
  warmed.warmup.epochs = 0.01;  // less than a step, but refused all the same
  CHECK(refusal(warmed, 0.1, 5) ==
        "test.yaml:7:3: lr_schedule: expected no warmup with one_cycle, which begins with a rise "
        "of its own (pct_start, div_factor), found one: remove it");
}

}  // namespace
}  // namespace dpt
