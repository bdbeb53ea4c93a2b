// `cosine` and `cosine_restarts`.
#include <cmath>

#include "tests/engine/schedules/support.h"
#include "tests/engine/schedules/torch_rates.h"

namespace dpt {
namespace {

TEST_CASE("cosine goes from lr to min_lr, half way at half time, and stays there") {
  const LrSchedule schedule = make_lr_schedule(scheduled("cosine", 10, {{"min_lr", 0.1}}), 0.9, 10);
  CHECK(schedule(0) == 0.9);
  CHECK(schedule(50) == doctest::Approx(0.5).epsilon(1e-14));
  CHECK(schedule(25) == doctest::Approx(0.1 + 0.8 * (1 + std::sqrt(0.5)) / 2).epsilon(1e-14));
  CHECK(schedule(100) == doctest::Approx(0.1).epsilon(1e-14));
  CHECK(schedule(1000) == schedule(100));
  for (std::int64_t step = 0; step < 100; ++step) CHECK(schedule(step + 1) < schedule(step));
  const OptionValues options = {{"min_lr", 0.02}};
  check_rates(make_lr_schedule(scheduled("cosine", 10, options), 0.3, 1), torch_rates::cosine);
  check_rates(make_lr_schedule(scheduled("cosine", 2, options), 0.3, 5), torch_rates::cosine);
}

TEST_CASE("cosine by epochs") {
  const TrainSpec spec = scheduled("cosine", 10, {{"min_lr", 0.02}, {"by", "epoch"}});
  check_epochs(make_lr_schedule(spec, 0.3, 7), 7, torch_rates::cosine);
}

TEST_CASE("the cosine runs over the steps after warm-up") {
  TrainSpec spec = scheduled("cosine", 3);
  spec.warmup.epochs = 1;
  spec.warmup.start_factor = 0;
  const LrSchedule schedule = make_lr_schedule(spec, 0.4, 10);
  CHECK(schedule(0) == 0.0);
  CHECK(schedule(5) == doctest::Approx(0.2).epsilon(1e-15));
  CHECK(schedule(10) == 0.4);
  CHECK(schedule(20) == doctest::Approx(0.2).epsilon(1e-14));
  CHECK(schedule(30) == doctest::Approx(0.0));
}

TEST_CASE("by epochs, the rate changes at the beginning of epochs, whatever the warm-up") {
  TrainSpec spec = scheduled("cosine", 5, {{"by", "epoch"}});
  spec.warmup.epochs = 1.5;
  const LrSchedule schedule = make_lr_schedule(spec, 0.4, 10);
  CHECK(schedule(15) == 0.4);
  CHECK(schedule(19) == 0.4);
  // Four epochs remain, counted from the one in which the warm-up ends.
  CHECK(schedule(20) == doctest::Approx(0.2 * (1 + std::sqrt(0.5))).epsilon(1e-14));
  CHECK(schedule(29) == schedule(20));
  CHECK(schedule(30) == doctest::Approx(0.2).epsilon(1e-14));
  CHECK(schedule(50) == doctest::Approx(0.0));
}

TEST_CASE("a cosine whose lowest rate is above lr is refused") {
  CHECK(refusal(scheduled("cosine", 1, {{"min_lr", 0.5}}), 0.1, 10) ==
        "test.yaml:7:3: lr_schedule: expected a min_lr of at most the optimizer's lr (0.1), found "
        "0.5");
  CHECK(refusal(scheduled("cosine_restarts", 1, {{"T_0", std::int64_t{3}}, {"eta_min", 0.5}}), 0.1,
                10) ==
        "test.yaml:7:3: lr_schedule: expected an eta_min of at most the optimizer's lr (0.1), "
        "found 0.5");
  // min_lr equals the learning rate, which therefore stays constant.
  const LrSchedule flat = make_lr_schedule(scheduled("cosine", 1, {{"min_lr", 0.1}}), 0.1, 10);
  for (std::int64_t step : {0, 5, 10}) CHECK(flat(step) == doctest::Approx(0.1).epsilon(1e-15));
}

TEST_CASE("cosine_restarts, in cycles of one length and of longer and longer ones") {
  const auto t = [](std::int64_t value) { return value; };
  check_epochs(make_lr_schedule(scheduled("cosine_restarts", 9, {{"T_0", t(4)}}), 0.3, 3), 3,
               torch_rates::cosine_restarts);
  const TrainSpec longer = scheduled(
      "cosine_restarts", 9, {{"T_0", t(2)}, {"T_mult", t(3)}, {"eta_min", 0.01}, {"by", "step"}});
  check_rates(make_lr_schedule(longer, 0.3, 3), torch_rates::cosine_restarts_longer);
}

}  // namespace
}  // namespace dpt
