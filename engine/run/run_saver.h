// Saving, in one place: what goes to disk, in which order, and in which thread.
//
// A save has these steps:
//   1. write the checkpoint: temporary file, write, fsync, rename, fsync of checkpoints/ (before a
//      new best, a former best that a rollback may need is copied to checkpoints/);
//   2. if it is the best so far, copy it to best.safetensors in the same way;
//   3. after a regular checkpoint, remove the run that --overwrite replaces, if any;
//   4. remove checkpoints that are no longer kept.
// Each step begins after the previous one is durable. A crash at any instant therefore leaves the
// newest checkpoint complete, and a best that is current or can be copied again from it
// (lineage.h). A failure of 1 or 2 fails the save. A failure of 3 or 4 is a warning, because
// nothing is lost. Before 1 and 3, the saver checks that the folder still belongs to this run; if
// not, the run ends.
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

/// A snapshot of the run, and where to keep it: checkpoints/step-N, best.safetensors, or both.
struct SaveRequest {
  Checkpoint checkpoint;
  bool keep = true;
  bool is_best = false;
  /// Steps whose checkpoints stay, in checkpoints/ and not only as best.safetensors:
  /// Divergence::best_steps.
  std::vector<std::int64_t> needed = {};
  /// False for a checkpoint that is saved because the run was stopped, perhaps by mistake.
  bool is_regular = true;
};

/// Result of a save.
struct SaveResult {
  std::int64_t step = 0, epoch = 0;
  std::string path;  ///< relative to the run folder
  bool keep = true, is_best = false;
  /// True if best.safetensors is now this checkpoint. After a failure, this is read from the file.
  bool best_moved = false;
  std::string checksum;      ///< checksum of the file
  std::exception_ptr error;  ///< null if it was saved
  bool lost_folder = false;  ///< true if the error is that the folder is no longer this run's
  std::vector<std::string> warnings;
};

/// Writes one snapshot at a time in a separate thread, while training continues. Used by one
/// thread; its destructor waits for the write.
class RunSaver {
 public:
  /// `pinned`: the step whose checkpoint is never removed, or -1. With `keeps_rollback_step`, the
  /// checkpoint to which a rollback would return (RunState::rollback_step) is not removed either.
  RunSaver(RunFolder& folder, const Plan& plan, std::int64_t keep_last, std::int64_t pinned = -1,
           bool keeps_rollback_step = false);
  ~RunSaver();
  RunSaver(const RunSaver&) = delete;

  /// Sets the steps and files of checkpoints to copy to checkpoints/. They are copied before the
  /// run that --overwrite replaces is removed, because that run may hold them.
  void carry(std::vector<std::pair<std::int64_t, HeldPath>> files) { carried_ = std::move(files); }

  /// Begins a save. REQUIRES: the result of the previous one was taken.
  void start(SaveRequest request);
  /// Returns the result of the last save, once, when it is available.
  std::optional<SaveResult> poll();
  /// Does the same after waiting for a save under way.
  std::optional<SaveResult> wait();

 private:
  SaveResult save(const SaveRequest& request);
  void keep_former_best(const SaveRequest& request, SaveResult& result);
  void clean_up(const SaveRequest& request, SaveResult& result);
  /// Throws if the folder no longer belongs to this run, and records that in `result`.
  void check_folder(SaveResult& result);

  RunFolder& folder_;
  const Plan& plan_;
  Retention retention_;
  bool keeps_rollback_step_;
  std::vector<std::pair<std::int64_t, HeldPath>> carried_;
  std::thread thread_;
  std::atomic<bool> done_ = false;
  std::optional<SaveResult> result_;  ///< written by the thread until done_
};

}  // namespace dpt
