// A folder in which the program is run, and what its outputs are asked for.
#pragma once

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace dpt::testing {

inline bool contains(const std::string& text, const std::string& part) {
  INFO("looked for: ", part, "\nin: ", text);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

/// A folder with a config, "small.yaml", in it.
struct Workplace {
  TempDir dir;
  explicit Workplace(const std::string& config = program_config()) {
    write_file(dir.file("small.yaml"), config);
  }
  Finished run(const std::vector<std::string>& arguments) const {
    return run_dpt(arguments, dir.path());
  }
  /// The same with `more` arguments.
  Finished run(std::vector<std::string> arguments, const std::vector<std::string>& more) const {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
};

/// The events of that name in a metrics.jsonl.
inline std::vector<nlohmann::json> events(const std::string& path, const std::string& name) {
  std::vector<nlohmann::json> found;
  std::istringstream lines(read_file(path));
  std::string line;
  while (std::getline(lines, line)) {
    const nlohmann::json event = nlohmann::json::parse(line);
    CHECK(event["v"] == 1);
    if (event["event"] == name) found.push_back(event);
  }
  return found;
}

}  // namespace dpt::testing
