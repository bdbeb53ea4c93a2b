#include "kernels/base/user_cache.h"

#include <cstdlib>

namespace dpt {

std::string user_cache_path(const std::string& name) {
  const auto variable = [](const char* which) {
    const char* value = std::getenv(which);
    return std::string(value ? value : "");
  };
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/dpt/" + name;
  }
  if (const std::string home = variable("HOME"); !home.empty()) {
    return home + "/.cache/dpt/" + name;
  }
  return {};
}

}  // namespace dpt
