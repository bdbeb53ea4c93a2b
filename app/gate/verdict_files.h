// The files of a verdict: Markdown for people (`--verdict`), JUnit XML for CI (`--junit`).
#pragma once

#include <string>
#include <vector>

#include "app/gate/conditions.h"

namespace dpt {

/// Conditions with their outcomes, and the context for the reader.
struct GateResult {
  std::string command;   ///< "train" or "eval"
  std::string subject;   ///< config, run or checkpoint in the command
  std::string baseline;  ///< Baseline::path
  std::string error;     ///< reason why the command failed before anything was checked, or empty
  std::vector<std::string> warnings;  ///< warnings shown with the verdict
  std::vector<Condition> conditions;
};

/// Returns a heading with the verdict, and a table with a row for each condition.
std::string verdict_markdown(const GateResult& result);

/// Returns JUnit XML with a test case for each condition. The case has a `failure` if the condition
/// is not met, `skipped` if it was not checked, and `error` if the command failed before that.
std::string verdict_junit(const GateResult& result);

}  // namespace dpt
