#include <cmath>

#include "tests/engine/schedules/support.h"

namespace dpt {
namespace {

TEST_CASE("inverse_sqrt with a timescale") {
  const TrainSpec spec = scheduled("inverse_sqrt", 9, {{"timescale", std::int64_t{10}}});
  const LrSchedule schedule = make_lr_schedule(spec, 0.3, 100);
  CHECK(schedule(0) == 0.3);
  CHECK(schedule(10) == doctest::Approx(0.3 * std::sqrt(0.5)).epsilon(1e-14));
  CHECK(schedule(30) == doctest::Approx(0.15).epsilon(1e-14));
  CHECK(schedule(990) == doctest::Approx(0.03).epsilon(1e-14));
}

TEST_CASE("inverse_sqrt takes the warm-up as its timescale: lr * sqrt(warm-up / step) after it") {
  TrainSpec spec = scheduled("inverse_sqrt", 9);
  spec.warmup.epochs = 2;
  spec.warmup.start_factor = 0;
  const LrSchedule schedule = make_lr_schedule(spec, 0.3, 8);
  CHECK(schedule(8) == doctest::Approx(0.15).epsilon(1e-14));
  CHECK(schedule(16) == 0.3);
  for (const std::int64_t step : {17, 40, 64}) {
    CHECK(schedule(step) ==
          doctest::Approx(0.3 * std::sqrt(16.0 / static_cast<double>(step))).epsilon(1e-14));
  }
}

TEST_CASE("inverse_sqrt by epochs") {
  TrainSpec spec = scheduled("inverse_sqrt", 9, {{"by", "epoch"}});
  spec.warmup.epochs = 1;
  const LrSchedule schedule = make_lr_schedule(spec, 0.3, 8);
  CHECK(schedule(15) == 0.3);
  CHECK(schedule(16) == doctest::Approx(0.3 * std::sqrt(0.5)).epsilon(1e-14));
  CHECK(schedule(23) == schedule(16));
  CHECK(schedule(32) == doctest::Approx(0.15).epsilon(1e-14));
}

TEST_CASE("inverse_sqrt needs something to measure time by") {
  CHECK(refusal(scheduled("inverse_sqrt", 9), 0.3, 8) ==
        "test.yaml:7:3: lr_schedule: expected a timescale with inverse_sqrt, or a warmup, whose "
        "length is then the timescale, found neither");
  TrainSpec short_warmup = scheduled("inverse_sqrt", 9);
  short_warmup.warmup.epochs = 0.01;  // rounds to 0 of the 8 steps
  CHECK(make_lr_schedule(short_warmup, 0.3, 8)(3) == 0.15);
}

}  // namespace
}  // namespace dpt
