// Time spent in each stage of reading samples, over all threads of the process. Off by default.
// While it is on, each sample costs a few reads of the clock.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace dpt {

enum class DataStage : std::uint8_t { read, decode, resize, transform };
inline constexpr std::array<const char*, 4> kDataStageNames = {"read files", "decode", "resize",
                                                               "other transforms"};

/// Seconds spent in each DataStage, excluding nested stages.
using StageSeconds = std::array<double, kDataStageNames.size()>;

/// Starts measuring from zero, or stops.
void measure_data_stages(bool on);
StageSeconds data_stage_seconds();

/// Timer that adds its lifetime to the seconds of a stage.
class StageTimer {
 public:
  explicit StageTimer(DataStage stage);
  ~StageTimer();
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  DataStage stage_;
  bool is_on_;
  StageTimer* outer_ = nullptr;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::duration within_{};  ///< time of timers nested in this one
};

}  // namespace dpt
