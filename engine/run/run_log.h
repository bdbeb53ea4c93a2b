// metrics.jsonl and summary.json, which scripts read. Formats: docs/reference/log-format.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "kernels/base/file_handle.h"
#include "kernels/base/file_io.h"
#include "kernels/base/held_path.h"

namespace dpt {

using Json = nlohmann::ordered_json;

/// Returns the reason why nothing can be appended to `path`, or an empty string. A pipe is refused,
/// because it would block a run while nobody reads it.
std::string why_no_log(const HeldPath& path);

struct RunState;

/// Progress of a run after a step or an epoch, logged or not.
struct RunProgress {
  std::int64_t epoch = 0, step = 0;  ///< counted from 1
  double loss = 0, lr = 0;           ///< values of the step
  std::int64_t samples = 0;          ///< samples of the step; 0 after an epoch
  double seconds = 0;                ///< duration of the step
  const RunState* state = nullptr;   ///< never null; valid during the call
};

/// Appends one JSON object per line. Non-finite numbers become null and are listed in `nonfinite`.
/// Each line is written completely or not at all.
///
/// The log never ends a run: a line that cannot be written (a full disk) is lost, with one warning.
/// When lines can be written again, a line `log_gap` states how many are missing.
class RunLog {
 public:
  using Warn = std::function<void(const std::string&)>;

  /// Creates a log that writes nothing.
  RunLog() = default;
  explicit RunLog(HeldPath path, Warn warn = {});

  /// Writes {"v":1,"event":EVENT,"time":TIME,"elapsed_s":SECONDS, fields...}.
  void event(const char* name, const Json& fields);
  /// Called with each event after its line is written (or lost).
  using Follower = std::function<void(const char* name, const Json& fields)>;
  void follow(Follower follower) { followers_.push_back(std::move(follower)); }
  /// Called with the progress of the run. No line is written for it.
  using ProgressFollower = std::function<void(const RunProgress&)>;
  void follow_progress(ProgressFollower follower) { progress_follower_ = std::move(follower); }
  void progress(const RunProgress& progress) {
    if (progress_follower_) progress_follower_(progress);
  }
  /// Reopens the log, so that the next line goes to the new file. Call it after the file was
  /// replaced (abandon_log_lines).
  void reopen() { file_ = FileHandle(); }

 private:
  void write_event(const char* name, const Json& fields);
  int open();
  int append(const std::string& text);

  std::optional<HeldPath> path_;
  Warn warn_;
  std::vector<Follower> followers_;
  ProgressFollower progress_follower_;
  FileHandle file_;
  std::int64_t whole_ = 0;  ///< size of the complete lines in bytes
  std::int64_t lost_ = 0;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  bool is_whole_ = true, warned_ = false;
};

/// Calls `visit` with each complete line of a log, including its newline. Reads the file in parts.
/// Throws ErrorKind::data.
void read_log_lines(const HeldPath& path, const std::function<void(const std::string&)>& visit);

/// Returns, for each step, the log's last "checkpoint" event about a file in checkpoints/. Empty if
/// there is no log.
std::map<std::int64_t, std::string> lines_of_checkpoints(const HeldPath& log);

/// Moves lines of `folder`/metrics.jsonl to the end of metrics.abandoned.jsonl: those after the
/// moment (step, epochs completed, rollbacks so far) at which a run continues, because these steps
/// will be repeated. Returns the number of lines moved. Throws ErrorKind::data, leaving the log
/// unchanged.
std::int64_t abandon_log_lines(const HeldPath& folder, std::int64_t step, std::int64_t epoch,
                               std::int64_t rollbacks = 0);

/// Numbers of lines that metrics.jsonl has gained and lost through restore_log_lines.
struct RestoredLines {
  std::int64_t restored = 0, abandoned = 0;
};

/// Replaces the lines of `folder`/metrics.jsonl with those of `branch_log`, the log of an abandoned
/// branch, up to the moment at which the run continues. Moves the other lines of metrics.jsonl to
/// metrics.abandoned.jsonl. Removes the restored lines from that file, so that each line exists
/// only once. Throws ErrorKind::data, leaving the log unchanged.
RestoredLines restore_log_lines(const HeldPath& folder, const HeldPath& branch_log,
                                std::int64_t step, std::int64_t epoch, std::int64_t rollbacks);

}  // namespace dpt
