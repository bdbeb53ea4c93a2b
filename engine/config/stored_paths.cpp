#include "engine/config/stored_paths.h"

#include <map>
#include <mutex>

#include "engine/config/paths.h"

namespace dpt {
namespace {

struct StoredPaths {
  std::mutex mutex;
  std::map<std::string, std::string> paths;  ///< resolved -> as a config stores it
};

StoredPaths& stored_paths() {
  static StoredPaths all;
  return all;
}

}  // namespace

void remember_secret_path(const std::string& path, const std::string& written) {
  StoredPaths& all = stored_paths();
  const std::lock_guard lock(all.mutex);
  all.paths.insert_or_assign(path, written);
}

std::string problem_of_stored_path(const std::string& path) {
  StoredPaths& all = stored_paths();
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.paths.find(path);
    if (found == all.paths.end() || found->second != path) return {};
  }
  return expand_variables(path, true).problem;
}

std::string stored_path(const std::string& path) {
  StoredPaths& all = stored_paths();
  std::string written;
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.paths.find(path);
    if (found == all.paths.end()) return escape_variables(path);
    written = found->second;
  }
  // The environment may have changed since the path was recorded.
  const ExpandedPath expanded = expand_variables(written, true);
  const bool is_same = expanded.is_unset
                           ? path == written
                           : expanded.problem.empty() && resolve_path(expanded.path, {}) == path;
  return is_same ? written : escape_variables(path);
}

}  // namespace dpt
