#include "kernels/base/stage_clock.h"

#include <atomic>

namespace dpt {
namespace {

std::atomic<bool> measures{false};
std::array<std::atomic<std::int64_t>, kDataStageNames.size()> nanoseconds{};
thread_local StageTimer* innermost = nullptr;

}  // namespace

void measure_data_stages(bool on) {
  for (auto& each : nanoseconds) each = 0;
  measures = on;
}

StageSeconds data_stage_seconds() {
  StageSeconds seconds{};
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    seconds[i] = static_cast<double>(nanoseconds[i].load()) * 1e-9;
  }
  return seconds;
}

StageTimer::StageTimer(DataStage stage)
    : stage_(stage), is_on_(measures.load(std::memory_order_relaxed)) {
  if (!is_on_) return;
  outer_ = innermost;
  innermost = this;
  begin_ = std::chrono::steady_clock::now();
}

StageTimer::~StageTimer() {
  if (!is_on_) return;
  const auto time = std::chrono::steady_clock::now() - begin_;
  innermost = outer_;
  if (outer_) outer_->within_ += time;
  nanoseconds[static_cast<std::size_t>(stage_)] +=
      std::chrono::duration_cast<std::chrono::nanoseconds>(time - within_).count();
}

}  // namespace dpt
