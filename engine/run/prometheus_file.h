// The state of a run for Prometheus: a file for the textfile collector of node_exporter
// (log.prometheus). Its metrics: docs/reference/log-format.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoints/checkpoint.h"
#include "engine/run/run_log.h"
#include "kernels/base/file_handle.h"

namespace dpt {

/// Content of the file.
struct PrometheusState {
  std::string run, folder;         ///< labels of every metric
  std::string status = "running";  ///< or the status of run_end
  std::optional<int> exit_code;    ///< unset while the run trains
  std::int64_t epoch = 0, step = 0, epochs = 0, steps = 0;
  double begun = 0, last_step = 0;  ///< seconds since 1970; equal at first
  std::optional<double> loss, lr, images_per_s;
  std::vector<std::pair<std::string, NamedValues>> evaluations;  ///< by split
  std::optional<double> best;
  std::string best_monitor;
  std::int64_t best_step = 0;

  void take_best(const RunState& state);
  /// Takes the best and the validation results from a state.
  void take_results(const RunState& state);
};

/// Returns the state in Prometheus' text exposition format, version 0.0.4.
std::string prometheus_text(const PrometheusState& state);

/// Returns the reason why a run cannot write its file to `path`, or an empty string if it can.
std::string why_no_prometheus_file(const std::string& path);

/// Locks the file for a run that is about to start, and creates it if it is missing. A lock ends
/// with its process, so the file of a dead run can be locked. Throws ErrorKind::usage if a live run
/// holds the file. Returns a closed handle if the file cannot be opened or locked.
FileHandle lock_prometheus_file(const std::string& path);

/// Follows a RunLog. Replaces the file at the start and at the end and, if `interval` has passed
/// since the last time, after a step, an epoch or an evaluation.
///
/// Like the log, it never ends a run. A file that cannot be written stays unchanged, with one
/// warning, and is written when that is possible again. Nothing waits for the disk. Each new file
/// is locked before it is in place (lock_prometheus_file). Used by one thread.
class PrometheusFile {
 public:
  PrometheusFile(std::string path, PrometheusState state, RunLog::Warn warn,
                 std::chrono::milliseconds interval = std::chrono::seconds(1));

  /// Follows a log. REQUIRES: this object outlives the use of `log`.
  void follow(RunLog& log);
  /// Writes the end of the run: the status of its run_end or, without that event, the status that
  /// belongs to the exit code.
  void end(int exit_code);

 private:
  void event(const std::string& name, const Json& fields);
  void progress(const RunProgress& progress);
  void update();
  void write();

  std::string path_;
  FileHandle lock_;  ///< the file in place
  PrometheusState state_;
  RunLog::Warn warn_;
  std::chrono::milliseconds interval_;
  std::chrono::steady_clock::time_point written_{};
  std::int64_t samples_ = 0;  ///< samples since the last write, trained in seconds_
  double seconds_ = 0;
  bool warned_ = false;
};

}  // namespace dpt
