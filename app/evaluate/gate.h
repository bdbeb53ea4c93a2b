// The gate of a command: `--require` with `--baseline`, and the verdict that `--verdict` and
// `--junit` ask for.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "app/evaluate/requirements.h"

namespace dpt {

/// What the results must meet, and where the verdict goes.
struct GateOptions {
  std::vector<std::string> requirements;
  std::string baseline, verdict, junit;
};

class Gate {
 public:
  /// `subject`: what `command` ("train", "eval") was called with. Only that of the first process
  /// reads the baseline and, where it `writes`, files; a dry run does not. Throws for options that
  /// do not fit together and for files that cannot be written, before anything is done.
  Gate(const GateOptions& options, std::string command, std::string subject, bool is_first,
       bool writes);

  const std::vector<Requirement>& requirements() const { return requirements_; }

  /// Reads the baseline and runs the command. Where that fails before the requirements are judged,
  /// the files say so, if they can be written. Throws ErrorKind::requirement, before the command,
  /// where the baseline does not have a value that is asked for.
  int guard(const std::function<int()>& body);

  /// Adds a warning to the verdict.
  void note(std::string warning) { notes_.push_back(std::move(warning)); }
  /// Writes the verdict; then throws ErrorKind::requirement unless all are met. `results`: those of
  /// `owner`, a run folder or checkpoint.
  void judge(const RunResults& results, const std::string& owner);
  /// Writes that nothing was checked, and why.
  void leave_unchecked(const std::string& reason);

 private:
  void check_files();
  void read_baseline();
  /// Writes the verdict; throws unless all are met.
  void finish(const std::vector<Judgement>& judgements);
  void write(const std::vector<Judgement>& judgements, const std::string& error);
  std::vector<Judgement> unchecked(const std::string& reason) const;

  GateOptions options_;
  std::string command_, subject_;
  bool is_first_, writes_, is_done_ = false;
  std::vector<Requirement> requirements_;
  std::vector<std::string> notes_;
  Baseline baseline_;
};

}  // namespace dpt
