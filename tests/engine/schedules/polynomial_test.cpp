#include "tests/engine/schedules/support.h"
#include "tests/engine/schedules/torch_rates.h"

namespace dpt {
namespace {

TEST_CASE("polynomial, with PyTorch's defaults and by steps") {
  check_epochs(make_lr_schedule(scheduled("polynomial", 20), 0.3, 4), 4, torch_rates::polynomial);
  const TrainSpec by_step = scheduled(
      "polynomial", 20, {{"total_iters", std::int64_t{10}}, {"power", 0.9}, {"by", "step"}});
  check_rates(make_lr_schedule(by_step, 0.3, 4), torch_rates::polynomial_power);
}

TEST_CASE("polynomial over the whole run") {
  const OptionValues options = {{"total_iters", std::int64_t{0}}, {"power", 0.9}, {"by", "step"}};
  check_rates(make_lr_schedule(scheduled("polynomial", 2, options), 0.3, 5),
              torch_rates::polynomial_power);
  TrainSpec warmed = scheduled("polynomial", 3, options);
  warmed.warmup.epochs = 1;
  const LrSchedule schedule = make_lr_schedule(warmed, 0.3, 5);
  CHECK(schedule(5) == 0.3);
  CHECK(schedule(14) > 0);
  CHECK(schedule(15) == 0);
}

}  // namespace
}  // namespace dpt
