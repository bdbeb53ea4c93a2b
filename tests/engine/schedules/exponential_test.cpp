#include "tests/engine/schedules/support.h"
#include "tests/engine/schedules/torch_rates.h"

namespace dpt {
namespace {

TEST_CASE("exponential, by epochs and by steps") {
  check_epochs(make_lr_schedule(scheduled("exponential", 5, {{"gamma", 0.9}}), 0.3, 4), 4,
               torch_rates::exponential);
  const TrainSpec by_step = scheduled("exponential", 5, {{"gamma", 0.9}, {"by", "step"}});
  check_rates(make_lr_schedule(by_step, 0.3, 4), torch_rates::exponential);
}

TEST_CASE("exponential counts from the end of the warm-up, as SequentialLR") {
  TrainSpec spec = scheduled("exponential", 5, {{"gamma", 0.9}, {"by", "step"}});
  spec.warmup.steps = 4;
  spec.warmup.start_factor = 0.25;
  check_rates(make_lr_schedule(spec, 0.3, 100), torch_rates::exponential_warmed);
}

}  // namespace
}  // namespace dpt
