#include "tests/engine/schedules/support.h"

namespace dpt {
namespace {

TEST_CASE("constant") {
  const LrSchedule schedule = make_lr_schedule(scheduled("constant", 3), 0.2, 10);
  for (std::int64_t step : {0, 1, 29, 1000}) CHECK(schedule(step) == 0.2);
}

}  // namespace
}  // namespace dpt
