#include "tests/engine/schedules/support.h"
#include "tests/engine/schedules/torch_rates.h"

namespace dpt {
namespace {

TEST_CASE("linear, with PyTorch's defaults and as a decay") {
  check_epochs(make_lr_schedule(scheduled("linear", 20), 0.3, 4), 4, torch_rates::linear);
  const auto decay = [](std::int64_t total) {
    return scheduled(
        "linear", 2,
        {{"start_factor", 1.0}, {"end_factor", 0.1}, {"total_iters", total}, {"by", "step"}});
  };
  check_rates(make_lr_schedule(decay(8), 0.3, 100), torch_rates::linear_decay);
  // 0 means `run`: two epochs of four steps.
  check_rates(make_lr_schedule(decay(0), 0.3, 4), torch_rates::linear_decay);
}

}  // namespace
}  // namespace dpt
