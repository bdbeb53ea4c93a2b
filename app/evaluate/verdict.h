// What became of requirements, as files for people and for CI.
#pragma once

#include <string>
#include <vector>

#include "app/evaluate/requirements.h"
#include "engine/run/run_files.h"

namespace dpt {

struct VerdictFacts {
  std::string command;   ///< "train" or "eval"
  std::string subject;   ///< the config, run or checkpoint that it was called with
  std::string baseline;  ///< as Baseline::path
  std::string error;     ///< why the command failed before anything was checked; empty = it did not
  std::vector<std::string> warnings = {};  ///< must accompany the verdict
};

/// A heading with the verdict, and a table with a row for each requirement.
std::string verdict_markdown(const VerdictFacts& facts, const std::vector<Judgement>& judgements);

/// JUnit XML: one test case for each requirement, with a `failure` where it is not met, `skipped`
/// where it was not checked, and `error` where the command failed before that.
std::string verdict_junit(const VerdictFacts& facts, const std::vector<Judgement>& judgements);

/// Text for XML 1.0, in elements and in attributes: bytes that are not UTF-8 and characters that
/// XML does not have become U+FFFD.
std::string xml_text(const std::string& text);

}  // namespace dpt
