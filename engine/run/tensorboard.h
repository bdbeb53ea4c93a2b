// Writer of a run's log as event files of TensorBoard in RUN/tensorboard. Formats:
// docs/reference/log-format.md.
#pragma once

#include <cstdint>
#include <string>

#include "engine/run/run_log.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/file_io.h"
#include "kernels/base/held_path.h"

namespace dpt {

/// Follows a RunLog, line by line: numbers of the events step, epoch and eval become scalars, each
/// event one record, written at once. Each process that trains in the folder begins a file of its
/// own, and so does a rollback; what older files have of steps that are no longer in metrics.jsonl,
/// because they will be repeated, is removed from them.
///
/// Like the log, it never ends a run: what cannot be written is lost, with one warning. Used by one
/// thread.
class TensorBoardLog {
 public:
  /// `folder` is the run's. Nothing is written before the first event run_start. Files in
  /// tensorboard/ whose names do not end in ".dpt" belong to others and stay unchanged. `hparams`:
  /// numbers, texts and booleans by name, by which TensorBoard sorts runs.
  TensorBoardLog(HeldPath folder, RunLog::Warn warn, const Json& hparams);

  /// REQUIRES: the line is in metrics.jsonl already.
  void event(const std::string& name, const Json& fields);

 private:
  void begin(std::int64_t step);
  void write(const std::string& record);
  void lose(const std::string& why);

  HeldPath run_, folder_;
  std::optional<HeldPath> path_;
  RunLog::Warn warn_;
  std::string hparams_;  ///< content of their record; empty: there is none
  FileHandle file_;
  std::int64_t whole_ = 0;  ///< bytes of the records that are whole
  bool warned_ = false;
};

}  // namespace dpt
