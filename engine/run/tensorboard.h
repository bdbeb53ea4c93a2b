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

/// Follows a RunLog line by line and writes the numbers of the events step, epoch and eval as
/// scalars, one record per event, without delay. Each process that trains in the folder begins a
/// new file, and so does a rollback. Records of steps that are no longer in metrics.jsonl, because
/// they will be repeated, are removed from older files.
///
/// Like the log, it never ends a run: a record that cannot be written is lost, with one warning.
/// Used by one thread.
class TensorBoardLog {
 public:
  /// `folder` is the run's. Nothing is written before the first event run_start. Files in
  /// tensorboard/ whose names do not end in ".dpt" belong to others and stay unchanged. `hparams`:
  /// numbers, texts and booleans by name, by which TensorBoard can sort runs.
  TensorBoardLog(HeldPath folder, RunLog::Warn warn, const Json& hparams);

  /// Writes the record of an event. REQUIRES: its line is already in metrics.jsonl.
  void event(const std::string& name, const Json& fields);

 private:
  void begin(std::int64_t step);
  void write(const std::string& record);
  void lose(const std::string& why);

  HeldPath run_, folder_;
  std::optional<HeldPath> path_;
  RunLog::Warn warn_;
  std::string hparams_;  ///< content of the record of hparams; empty without any
  FileHandle file_;
  std::int64_t whole_ = 0;  ///< size of the complete records in bytes
  bool warned_ = false;
};

}  // namespace dpt
