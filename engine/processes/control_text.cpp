#include "engine/processes/control_text.h"

#include <fmt/format.h>

#include <cstddef>

namespace dpt::control {

std::string name_of(int rank, const std::string& host, std::int64_t pid) {
  return fmt::format("rank {} (host {}, pid {})", rank, host, pid);
}

std::string place_text(const std::string& heartbeat) {
  return heartbeat.rfind("before", 0) == 0 ? heartbeat : "at " + heartbeat;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    // List two consecutive ranks without "to".
    if (end - i == 2) end = i + 1;
    runs.push_back(end - i == 1 ? fmt::format("{}", ranks[i])
                                : fmt::format("{} to {}", ranks[i], ranks[end - 1]));
    i = end;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i > 0) text += i + 1 == runs.size() ? " and " : ", ";
    text += runs[i];
  }
  return text;
}

}  // namespace dpt::control
