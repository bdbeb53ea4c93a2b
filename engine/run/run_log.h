// metrics.jsonl and summary.json: what a script reads. Formats: docs/reference/log-format.md.
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

/// Why nothing can be appended to `path`, or empty. A pipe would hold a run up when nobody reads
/// it.
std::string why_no_log(const HeldPath& path);

struct RunState;

/// Progress of a run after a step or an epoch, logged or not.
struct RunProgress {
  std::int64_t epoch = 0, step = 0;  ///< counted from 1
  double loss = 0, lr = 0;           ///< values of the step
  std::int64_t samples = 0;          ///< that the step trained on; 0 after an epoch
  double seconds = 0;                ///< that the step took
  const RunState* state = nullptr;   ///< never null; valid during the call
};

/// Appends one object a line. Numbers that are not finite become null and are named in
/// `nonfinite`. Each line is written whole or not at all.
///
/// The log never ends a run: a line that cannot be written (a full disk) is lost, with one warning,
/// and when lines can be written again, a line `log_gap` says how many are missing.
class RunLog {
 public:
  using Warn = std::function<void(const std::string&)>;

  /// Writes nothing.
  RunLog() = default;
  explicit RunLog(HeldPath path, Warn warn = {});

  /// {"v":1,"event":EVENT,"time":TIME,"elapsed_s":SECONDS, fields...}
  void event(const char* name, const Json& fields);
  /// Calls `follower` with each event after its line is written (or lost).
  using Follower = std::function<void(const char* name, const Json& fields)>;
  void follow(Follower follower) { followers_.push_back(std::move(follower)); }
  /// Passes the progress of the run on to the one follower; writes no line.
  using ProgressFollower = std::function<void(const RunProgress&)>;
  void follow_progress(ProgressFollower follower) { progress_follower_ = std::move(follower); }
  void progress(const RunProgress& progress) {
    if (progress_follower_) progress_follower_(progress);
  }
  /// To be called when the file was replaced (abandon_log_lines): the next line goes to the new
  /// one.
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
  std::int64_t whole_ = 0;  ///< bytes of the lines that are whole
  std::int64_t lost_ = 0;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  bool is_whole_ = true, warned_ = false;
};

/// Calls `visit` with each whole line of a log, including its end, reading the file in parts.
/// Throws ErrorKind::data.
void read_log_lines(const HeldPath& path, const std::function<void(const std::string&)>& visit);

/// Returns, for each step that was saved in checkpoints/, the last line of a log that says so;
/// empty if there is no log.
std::map<std::int64_t, std::string> lines_of_checkpoints(const HeldPath& log);

/// Moves the lines of `folder`/metrics.jsonl that came after the moment (step, epochs completed,
/// rollbacks so far) at which a run goes on, to the end of metrics.abandoned.jsonl: these steps
/// will be repeated. Returns how many. Throws ErrorKind::data; the log is as it was then.
std::int64_t abandon_log_lines(const HeldPath& folder, std::int64_t step, std::int64_t epoch,
                               std::int64_t rollbacks = 0);

/// Numbers of lines that metrics.jsonl has gained and lost by restore_log_lines.
struct RestoredLines {
  std::int64_t restored = 0, abandoned = 0;
};

/// Makes the lines of `branch_log`, the log of an abandoned branch, up to the moment at which the
/// run continues, those of `folder`/metrics.jsonl. Other lines of metrics.jsonl move to
/// metrics.abandoned.jsonl, from which those that come back are removed: each line exists once.
/// Throws ErrorKind::data, leaving the log unchanged.
RestoredLines restore_log_lines(const HeldPath& folder, const HeldPath& branch_log,
                                std::int64_t step, std::int64_t epoch, std::int64_t rollbacks);

}  // namespace dpt
