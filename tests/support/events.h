// Reads the events from the log of a run.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dpt::testing {

/// Returns the events named `name` in a metrics.jsonl. Every line of the file must be an event.
inline std::vector<nlohmann::json> events(const std::string& path, const std::string& name) {
  std::vector<nlohmann::json> found;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
    INFO(line);
    REQUIRE(event.is_object());
    CHECK(event["v"] == 1);
    if (event["event"] == name) found.push_back(std::move(event));
  }
  return found;
}

}  // namespace dpt::testing
