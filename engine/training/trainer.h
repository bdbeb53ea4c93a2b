// The training loop. Every rank runs the same straight-line function; rank 0 also writes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoints/checkpoint.h"
#include "engine/job/job.h"
#include "engine/job/starting_point.h"
#include "engine/processes/stop.h"
#include "engine/run/ledger.h"
#include "engine/run/progress.h"
#include "engine/run/run_folder.h"
#include "engine/run/run_log.h"
#include "engine/training/evaluator.h"

namespace dpt {

struct TrainLimits {
  std::optional<std::int64_t> max_steps;         ///< limit for the whole run
  std::optional<std::chrono::seconds> max_time;  ///< limit for this process, from `begun` on
  /// Start of the process, so that the time to read the data counts.
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  /// Asked by every rank between steps and between the micro-batches of an evaluation.
  std::function<StopReason()> stop_request = requested_stop;
};

/// Reason why a run that did not fail ended.
enum class RunEnd : std::uint8_t { complete, max_steps, stopped };
/// Returns the name in the log and summary.json: "ok", "max_steps", "stopped".
const char* name_of(RunEnd end);

/// End of a run.
struct TrainOutcome {
  RunEnd end = RunEnd::complete;
  StopReason reason = StopReason::none;
  RunState state;  ///< final state, with the results of the last complete epoch
  std::optional<EvalResult> test;
  bool early_stopped = false;
  double seconds = 0;
  LedgerTotals ledger;  ///< times of this process since it made the replica; on rank 0
};

/// Trains until the epochs are done or a stop is requested. Writes checkpoints and log lines to the
/// folder. When it returns, the last state is saved, whatever checkpoint.on_failure says. Throws
/// the error of the first rank that failed, after any save under way has ended.
TrainOutcome train(const Job& job, const StartingPoint& start, const TrainLimits& limits,
                   RunFolder& folder, RunLog& log, Progress& progress);

}  // namespace dpt
