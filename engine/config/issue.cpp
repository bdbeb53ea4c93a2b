#include "engine/config/issue.h"

#include <fmt/format.h>

namespace dpt {

bool concerns(const ConfigIssue& issue, const std::string& path) {
  const auto is_at_or_below = [](const std::string& inner, const std::string& outer) {
    return inner.starts_with(outer) && (inner.size() == outer.size() || inner[outer.size()] == '.');
  };
  return issue.path.empty() || is_at_or_below(issue.path, path) || is_at_or_below(path, issue.path);
}

std::string text_of(const std::vector<ConfigIssue>& issues) {
  std::string text;
  for (const ConfigIssue& issue : issues) {
    if (!text.empty()) text += '\n';
    text += fmt::format("{}: {}", issue.where.text(), issue.text);
  }
  return text;
}

}  // namespace dpt
