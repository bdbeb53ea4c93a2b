// Saving, in one place: what goes to disk, in which order, and in which thread.
//
// One save:
//   1. the checkpoint: temporary file, write, fsync, rename, fsync of checkpoints/ (before a new
//      best: a former one that a rollback may need gets a place in checkpoints/);
//   2. if it is the best so far: a copy of it as best.safetensors, by the same steps;
//   3. after a regular checkpoint, the run that --overwrite replaces, if any, is given up;
//   4. checkpoints that may go are removed.
// Each step begins after the one before is durable, so that a crash at any instant leaves the
// newest checkpoint whole, and a best that is this one or can be copied again from it (lineage.h).
// 1 and 2 can fail a save; what goes wrong in 3 and 4 is a warning, because nothing is lost by it.
// Before 1 and 3 the folder is checked to be still this run's; if it is not, the run ends.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/checkpoints/checkpoint.h"
#include "engine/checkpoints/retention.h"
#include "engine/run/run_folder.h"
#include "kernels/base/held_path.h"

namespace dpt {

/// A snapshot of the run, and what to keep it as: checkpoints/step-N, best.safetensors, or both.
struct SaveRequest {
  Checkpoint checkpoint;
  bool keep = true;
  bool is_best = false;
  /// Steps whose checkpoints stay too, and not only as best.safetensors: Divergence::best_steps.
  std::vector<std::int64_t> needed = {};
  /// False for a checkpoint that is saved because the run stops, perhaps by mistake.
  bool is_regular = true;
};

/// Result of a save.
struct SaveResult {
  std::int64_t step = 0, epoch = 0;
  std::string path;  ///< relative to the run folder
  bool keep = true, is_best = false;
  /// best.safetensors is this checkpoint now. After a failure, as the file itself says.
  bool best_moved = false;
  std::string checksum;      ///< checksum of the file
  std::exception_ptr error;  ///< null when it is saved
  bool lost_folder = false;  ///< the error: the folder is no longer this run's
  std::vector<std::string> warnings;
};

/// Writes one snapshot at a time in a thread of its own, while the steps go on. Used by one thread;
/// its destructor waits for the write.
class RunSaver {
 public:
  /// `pinned`: the step whose checkpoint is never removed, or -1. With `keeps_rollback_step` this
  /// also holds for the one that a rollback would go back to (RunState::rollback_step).
  RunSaver(RunFolder& folder, const Plan& plan, std::int64_t keep_last, std::int64_t pinned = -1,
           bool keeps_rollback_step = false);
  ~RunSaver();
  RunSaver(const RunSaver&) = delete;

  /// Step and file of checkpoints that get a place in checkpoints/ before the run that --overwrite
  /// replaces, which may hold them, is given up.
  void carry(std::vector<std::pair<std::int64_t, HeldPath>> files) { carried_ = std::move(files); }

  /// Begins a save. REQUIRES: the result of the one before was taken.
  void start(SaveRequest request);
  /// The result of the last save: once, as soon as there is one.
  std::optional<SaveResult> poll();
  /// The same, waiting for a save under way.
  std::optional<SaveResult> wait();

 private:
  SaveResult save(const SaveRequest& request);
  void keep_former_best(const SaveRequest& request, SaveResult& result);
  void clean_up(const SaveRequest& request, SaveResult& result);
  /// Throws if the folder is lost, and notes it in `result`.
  void check_folder(SaveResult& result);

  RunFolder& folder_;
  const Plan& plan_;
  Retention retention_;
  bool keeps_rollback_step_;
  std::vector<std::pair<std::int64_t, HeldPath>> carried_;
  std::thread thread_;
  std::atomic<bool> done_ = false;
  std::optional<SaveResult> result_;  ///< the thread's, until done_
};

}  // namespace dpt
