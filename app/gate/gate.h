// The gate of a command: `--require` with `--baseline`, and the files of `--verdict` and `--junit`.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "app/gate/conditions.h"
#include "app/gate/verdict_files.h"

namespace dpt {

/// Conditions on the results, and the files for the verdict.
struct GateOptions {
  std::vector<std::string> requirements;
  std::string baseline, verdict, junit;
};

class Gate {
 public:
  /// `subject` is the argument of `command` ("train", "eval"). Only the gate of the first process
  /// reads the baseline. It writes files only if `writes` is true (false in a dry run). Throws,
  /// before anything is done, for options that do not fit together and for files that cannot be
  /// written.
  Gate(const GateOptions& options, const std::string& command, const std::string& subject,
       bool is_first, bool writes);

  const std::vector<Condition>& conditions() const { return result_.conditions; }

  /// Reads the baseline and runs the command. If the command fails before the conditions are
  /// judged, writes the reason into the files, if possible. Throws ErrorKind::requirement, before
  /// the command runs, if the baseline lacks a value on which a bound depends.
  int guard(const std::function<int()>& body);

  /// Adds a warning to the verdict.
  void note(std::string warning) { result_.warnings.push_back(std::move(warning)); }
  /// Writes the verdict; then throws ErrorKind::requirement unless all conditions are met.
  /// `results` are those of `owner`, a run folder or checkpoint.
  void judge(const RunResults& results, const std::string& owner);
  /// Writes a verdict that says that no condition was checked, and why (`reason`).
  void leave_unchecked(const std::string& reason);

 private:
  void check_files();
  void read_baseline();
  /// Writes the verdict and reports the conditions that are met. Throws unless all are met.
  void finish();
  /// Writes the files. Throws if they cannot be written. If there is already a reason to fail, an
  /// `error` or a condition that is not met, only warns.
  void write(const std::string& error = {});

  GateOptions options_;  ///< empty unless this is the first process
  bool writes_, is_done_ = false;
  Baseline baseline_;
  GateResult result_;
};

}  // namespace dpt
