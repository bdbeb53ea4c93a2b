// Time that each stage of reading samples takes, over all threads of the process. Off unless
// requested: then each sample costs a few reads of the clock.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace dpt {

enum class DataStage : std::uint8_t { read, decode, resize, transform };
inline constexpr std::array<const char*, 4> kDataStageNames = {"read files", "decode", "resize",
                                                               "other transforms"};

/// Seconds of each DataStage; without those of other stages that ran within it.
using StageSeconds = std::array<double, kDataStageNames.size()>;

/// Starts from zero, or ends.
void measure_data_stages(bool on);
StageSeconds data_stage_seconds();

/// Counts its lifetime for a stage.
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
  std::chrono::steady_clock::duration within_{};  ///< time of timers inside this one
};

}  // namespace dpt
