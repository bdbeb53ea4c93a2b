#include <cmath>

#include "tests/engine/schedules/support.h"

namespace dpt {
namespace {

double at(const char* shape, std::int64_t step) {
  TrainSpec spec = scheduled("wsd", 5, {{"decay", 0.4}, {"shape", shape}, {"min_lr", 0.1}});
  spec.warmup.epochs = 1;
  spec.warmup.start_factor = 0.5;
  return make_lr_schedule(spec, 0.5, 25)(step);
}

TEST_CASE("wsd: warm-up of 25 steps, 60 stable ones, 40 of decay, of each shape") {
  for (const char* shape : {"1-sqrt", "linear", "cosine"}) {
    CAPTURE(shape);
    CHECK(at(shape, 0) == 0.25);
    CHECK(at(shape, 25) == 0.5);
    CHECK(at(shape, 85) == 0.5);
    CHECK(at(shape, 86) < 0.5);
    CHECK(at(shape, 125) == doctest::Approx(0.1).epsilon(1e-14));
    CHECK(at(shape, 1000) == doctest::Approx(0.1).epsilon(1e-14));
  }
  // After a quarter of the decay.
  CHECK(at("1-sqrt", 95) == doctest::Approx(0.1 + 0.4 * 0.5).epsilon(1e-14));
  CHECK(at("linear", 95) == doctest::Approx(0.1 + 0.4 * 0.75).epsilon(1e-14));
  CHECK(at("cosine", 95) == doctest::Approx(0.1 + 0.4 * (1 + std::sqrt(0.5)) / 2).epsilon(1e-14));
}

TEST_CASE("wsd: the default decays over the last fifth") {
  const LrSchedule schedule = make_lr_schedule(scheduled("wsd", 10), 0.4, 10);
  CHECK(schedule(80) == 0.4);
  CHECK(schedule(85) == doctest::Approx(0.2).epsilon(1e-14));
  CHECK(schedule(100) == 0.0);
}

TEST_CASE("wsd by epochs, and a decay of less than one") {
  const TrainSpec spec =
      scheduled("wsd", 10, {{"decay", 0.01}, {"shape", "linear"}, {"by", "epoch"}});
  const LrSchedule schedule = make_lr_schedule(spec, 0.4, 10);
  CHECK(schedule(99) == 0.4);
  CHECK(schedule(100) == 0.0);
  const TrainSpec two = scheduled("wsd", 4, {{"decay", 0.5}, {"shape", "linear"}, {"by", "epoch"}});
  CHECK(make_lr_schedule(two, 0.4, 10)(29) == 0.4);
  CHECK(make_lr_schedule(two, 0.4, 10)(30) == doctest::Approx(0.2).epsilon(1e-14));
}

TEST_CASE("a wsd whose lowest rate is above lr is refused") {
  CHECK(refusal(scheduled("wsd", 1, {{"min_lr", 0.5}}), 0.1, 10).find("found 0.5") !=
        std::string::npos);
}

}  // namespace
}  // namespace dpt
