// A run whose results the tests of gates use.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/run/run_log.h"
#include "tests/cli/tiny.h"

namespace dpt::testing {

/// A run of the tiny config in runs/tiny, for comparison.
struct Gates : Tiny {
  Gates() { run_well({"train", "small.yaml"}); }
  Json summary() const { return Json::parse(read_file(dir.file("runs/tiny/summary.json"))); }
  double loss() const { return summary()["test"]["loss"]; }
  Finished train(const std::vector<std::string>& more) const {
    return run({"train", "small.yaml", "--run-dir", "new"}, more);
  }
  Finished eval(const std::vector<std::string>& more) const {
    return run({"eval", "runs/tiny"}, more);
  }
  std::string text(const std::string& file) const { return read_file(dir.file(file)); }
};

}  // namespace dpt::testing
