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
#include "engine/training/evaluator.h"
#include "engine/training/job.h"
#include "engine/training/ledger.h"
#include "engine/training/progress.h"
#include "engine/training/run_folder.h"
#include "engine/training/run_log.h"
#include "engine/training/stop.h"

namespace dpt {

/// Where a run starts: the first step of a fresh run, or a checkpoint.
struct StartingPoint {
  RunState state;
  std::vector<float> params;
  std::vector<std::pair<std::string, std::vector<float>>> optimizer;  ///< empty = zeros
  std::string config, checksum, folder;  ///< of the checkpoint's file; empty for a fresh run
  std::vector<std::string> devices;      ///< that the checkpoint was made on
  std::string made_by;                   ///< as the function, when it was made
  /// Step and file of other checkpoints that a rollback needs: of rollback_step, and the best then.
  std::vector<std::pair<std::int64_t, HeldPath>> ancestors;
  bool is_saved = false;      ///< the run folder holds a checkpoint of just this state
  bool keep_forever = false;  ///< retention never removes that checkpoint
};

struct TrainLimits {
  std::optional<std::int64_t> max_steps;         ///< of the whole run
  std::optional<std::chrono::seconds> max_time;  ///< of this process, from `begun` on
  /// When the process began: reading the data counts.
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  /// Asked by every rank between steps and between the micro-batches of an evaluation.
  std::function<StopReason()> stop_request = requested_stop;
};

/// Why a run that did not fail ended.
enum class RunEnd : std::uint8_t { complete, max_steps, stopped };
/// As the log and summary.json say it: "ok", "max_steps", "stopped".
const char* name_of(RunEnd end);

/// How a run ended.
struct TrainOutcome {
  RunEnd end = RunEnd::complete;
  StopReason reason = StopReason::none;
  RunState state;  ///< with the results of the last complete epoch
  std::optional<EvalResult> test;
  bool early_stopped = false;
  double seconds = 0;
  LedgerTotals ledger;  ///< of this process, from the making of the replica on; on rank 0
};

/// Trains until the epochs are done or something asks for a stop; checkpoints and log lines go to
/// the folder. When it returns, the last state is saved, whatever checkpoint.on_failure says.
/// Throws what went wrong on the first rank that failed; a save under way has come to its end then.
TrainOutcome train(const Job& job, const StartingPoint& start, const TrainLimits& limits,
                   RunFolder& folder, RunLog& log, Progress& progress);

/// Collective over the processes of a job: what `make` gives on the process that writes, where
/// alone it is called. The others get what training needs of it, without files and folders. Alone,
/// it is `make()`.
StartingPoint share_start(const Job& job, const std::function<StartingPoint()>& make);

/// A fresh run's starting point: initial weights by the plan.
StartingPoint fresh_start(const Job& job);

/// The starting point of a checkpoint. Throws ErrorKind::data when it does not fit the job.
StartingPoint start_from_checkpoint(const Job& job, const std::string& path);
/// Does the same with a checkpoint that was already read, taking its content.
StartingPoint start_from_checkpoint(const Job& job, VerifiedCheckpoint& file);

/// What made a result: libraries, instruction set and maker of the processor, devices. Kept in
/// checkpoints and env.json.
std::string made_by(const Job& job);

}  // namespace dpt
