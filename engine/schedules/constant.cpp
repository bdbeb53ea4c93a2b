// A constant schedule: the optimizer's learning rate throughout.
#include "engine/schedules/kinds.h"

namespace dpt {
namespace {

struct ConstantOptions {};

const ObjectTable& constant_table() {
  static const ObjectTable the_table =
      object_table<ConstantOptions>("constant", "The optimizer's learning rate throughout.", {});
  return the_table;
}

LrSchedule make_constant(const Variant&, const ScheduledRun& run) {
  return [lr = run.base_lr](std::int64_t) { return lr; };
}

}  // namespace

ScheduleKind constant_schedule() {
  return {&constant_table(), &make_constant};
}

}  // namespace dpt
