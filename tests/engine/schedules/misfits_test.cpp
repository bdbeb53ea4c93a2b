// Schedule lengths that do not fit the run.
#include "tests/engine/schedules/support.h"

namespace dpt {
namespace {

using Texts = std::vector<std::string>;

Texts misfits(const char* type, std::int64_t epochs, OptionValues values = {},
              std::optional<std::int64_t> steps = 4) {
  return misfits_of_schedule(scheduled(type, epochs, values), steps);
}

TEST_CASE("a decay to 0 that ends before the run") {
  const Texts text = {
      "lr_schedule: polynomial: total_iters: 5 epochs is shorter than the run: the learning rate "
      "is "
      "0 from epoch 6 to the last one, 25"};
  CHECK(misfits("polynomial", 25) == text);
  CHECK(misfits("polynomial", 25, {}, std::nullopt) == text);
  CHECK(misfits("polynomial", 5).empty());
  CHECK(misfits("polynomial", 25, {{"total_iters", std::int64_t{0}}}).empty());
  CHECK(
      misfits("polynomial", 3).at(0).find("5 epochs is longer than the run, which has 3 epochs") !=
      std::string::npos);
  // The warm-up before the schedule counts, too.
  TrainSpec warmed = scheduled("polynomial", 7);
  warmed.warmup.epochs = 2;
  CHECK(misfits_of_schedule(warmed, 4).empty());
  warmed.train.epochs = 8;
  CHECK(misfits_of_schedule(warmed, 4).at(0).find("from epoch 8 to the last one, 8") !=
        std::string::npos);
  // Lengths in steps are checked only if the data is known.
  const OptionValues by_step = {{"total_iters", std::int64_t{10}}, {"by", "step"}};
  CHECK(misfits("polynomial", 3, by_step, std::nullopt).empty());
  CHECK(misfits("polynomial", 3, by_step).at(0).find("from step 11 to the last one, 12") !=
        std::string::npos);
  CHECK(misfits("linear", 9, {{"start_factor", 1.0}, {"end_factor", 0.0}}).size() == 1);
  CHECK(misfits("linear", 9).empty());
  CHECK(misfits("linear", 4)
            .at(0)
            .find("it never reaches the point where the learning rate is 1 * lr") !=
        std::string::npos);
}

TEST_CASE("changes that the run never comes to") {
  using Milestones = std::vector<std::int64_t>;
  CHECK(misfits("multistep", 3, {{"milestones", Milestones{30, 60, 90}}}) ==
        Texts{"lr_schedule: multistep: milestones: 30, 60, 90 are not reached: the run has 3 "
              "epochs"});
  CHECK(misfits("multistep", 60, {{"milestones", Milestones{30, 60}}}) ==
        Texts{"lr_schedule: multistep: milestones: 60 is not reached: the run has 60 epochs"});
  CHECK(misfits("multistep", 61, {{"milestones", Milestones{30, 60}}}).empty());
  CHECK(misfits("step", 3, {{"step_size", std::int64_t{3}}}) ==
        Texts{"lr_schedule: step: step_size: the run has 3 epochs, so the learning rate never "
              "changes"});
  CHECK(misfits("step", 4, {{"step_size", std::int64_t{3}}}).empty());
  CHECK(misfits("cosine_restarts", 9, {{"T_0", std::int64_t{10}}}).size() == 1);
  CHECK(misfits("cosine_restarts", 9, {{"T_0", std::int64_t{9}}}).empty());
  for (const char* whole : {"constant", "cosine", "wsd", "inverse_sqrt", "one_cycle"}) {
    CAPTURE(whole);
    CHECK(misfits(whole, 1).empty());
  }
}

TEST_CASE("a warm-up longer than the run") {
  TrainSpec spec = scheduled("cosine", 3);
  spec.warmup.epochs = 50;
  const Texts text = {
      "lr_schedule.warmup: 50 epochs are more than the run has (3): it never reaches the learning "
      "rate of the schedule"};
  CHECK(misfits_of_schedule(spec, 4) == text);
  CHECK(misfits_of_schedule(spec, std::nullopt) == text);
  spec.warmup.epochs = 3;
  CHECK(misfits_of_schedule(spec, 4).empty());
  spec.warmup = {};
  spec.warmup.steps = 13;
  CHECK(misfits_of_schedule(spec, 4).at(0).find("13 steps are more than the run has (12)") !=
        std::string::npos);
  CHECK(misfits_of_schedule(spec, std::nullopt).empty());
}

}  // namespace
}  // namespace dpt
