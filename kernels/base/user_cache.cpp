#include "kernels/base/user_cache.h"

#include <cstdlib>

#include <fmt/format.h>

#include "kernels/base/text.h"

namespace dpt {
namespace {

/// Returns the value of a variable if it is an absolute path; else an empty string.
std::string folder_in(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value == '/' ? value : "";
}

/// Returns a description of a variable that is not an absolute path: "empty".
std::string state_of(const char* variable) {
  const char* value = std::getenv(variable);
  if (!value) return "not set";
  return *value ? fmt::format("the relative path '{}'", printable(value)) : "empty";
}

}  // namespace

std::string user_cache_path(const std::string& name) {
  if (const std::string cache = folder_in("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/dpt/" + name;
  }
  if (const std::string home = folder_in("HOME"); !home.empty()) {
    return home + "/.cache/dpt/" + name;
  }
  return {};
}

std::string no_user_cache_text() {
  return fmt::format("XDG_CACHE_HOME is {}, and HOME is {}", state_of("XDG_CACHE_HOME"),
                     state_of("HOME"));
}

std::string ignored_cache_home_text() {
  const char* value = std::getenv("XDG_CACHE_HOME");
  if (!value || *value == '\0' || *value == '/' || folder_in("HOME").empty()) return {};
  return fmt::format(
      "XDG_CACHE_HOME is {} and ignored: set it to an absolute path. ~/.cache is "
      "used instead",
      state_of("XDG_CACHE_HOME"));
}

}  // namespace dpt
