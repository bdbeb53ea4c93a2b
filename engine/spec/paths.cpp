#include "engine/spec/paths.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

namespace dpt {
namespace {

bool is_variable_name(const std::string& name) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  for (const char c : name) {
    const bool is_word =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    if (!is_word) return false;
  }
  return true;
}

}  // namespace

ExpandedPath expand_variables(const std::string& text) {
  ExpandedPath result;
  std::size_t at = 0;
  while (at < text.size()) {
    if (text.compare(at, 3, "$${") == 0) {
      result.path += "${";
      at += 3;
      continue;
    }
    if (text.compare(at, 2, "${") != 0) {
      result.path += text[at++];
      continue;
    }
    const std::size_t end = text.find('}', at);
    if (end == std::string::npos) {
      result.problem = "expected '}' after '${'";
      return result;
    }
    const std::string inside = text.substr(at + 2, end - at - 2);
    const std::size_t colon = inside.find(":-");
    const std::string name = inside.substr(0, colon);
    if (!is_variable_name(name)) {
      result.problem =
          fmt::format("expected ${{NAME}} or ${{NAME:-default}}, found '${{{}}}'", inside);
      return result;
    }
    const char* value = std::getenv(name.c_str());
    if (value != nullptr && *value != '\0') {
      result.path += value;
    } else if (colon != std::string::npos) {
      result.path += inside.substr(colon + 2);
    } else {
      result.problem = fmt::format(
          "the environment variable {} is not set: set it, or give a default as in "
          "${{{}:-folder}}",
          name, name);
      return result;
    }
    at = end + 1;
  }
  return result;
}

std::string escape_variables(const std::string& path) {
  std::string out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path.compare(i, 2, "${") == 0) out += '$';
    out += path[i];
  }
  return out;
}

bool is_stream(const std::string& file) {
  const std::string path = std::filesystem::path(file).lexically_normal().string();
  return path.starts_with("/dev/") || path.starts_with("/proc/");
}

std::string folder_of_config(const std::string& file) {
  return is_stream(file) ? std::string() : std::filesystem::path(file).parent_path().string();
}

std::string resolve_path(const std::string& path, const std::string& file) {
  if (path.empty()) return path;
  namespace fs = std::filesystem;
  return fs::absolute(fs::path(folder_of_config(file)) / path).lexically_normal().string();
}

}  // namespace dpt
