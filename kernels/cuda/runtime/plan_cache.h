// The file that stores timed choices between implementations, so that only the first run on a
// machine times them.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace dpt {

/// Cache file in JSON: {"format": 3, "machines": {machine: {problem: plan}}}. Losing it is
/// harmless. A file that is missing, damaged or of another format counts as empty and is rewritten.
/// If the file cannot be written, choices last for this process only. The file is replaced as a
/// whole (temporary file and rename). Processes that share it take turns (lock file next to it) and
/// keep each other's choices. Any thread may call this class.
class PlanCache {
 public:
  /// Returns this process's object for the file.
  static PlanCache& of(const std::filesystem::path& file);

  explicit PlanCache(std::filesystem::path file) : file_(std::move(file)) {}

  /// Returns the name of the plan for the problem. If the cache has a plan that `usable` accepts,
  /// returns that. Otherwise calls `choose` and caches the result, unless it is empty (a choice
  /// that is not final). If another process has chosen meanwhile, its choice is used if `usable`
  /// accepts it, so that replicas agree. Calls of other threads wait, so replicas on equal GPUs
  /// share one choice.
  std::string decide(const std::string& machine, const std::string& problem,
                     const std::function<bool(const std::string&)>& usable,
                     const std::function<std::string()>& choose);

 private:
  using Machines = std::map<std::string, std::map<std::string, std::string>>;

  static Machines read(const std::filesystem::path& file);
  std::string* find(const std::string& machine, const std::string& problem);
  void merge_and_write(const std::string& machine, const std::string& problem,
                       const std::function<bool(const std::string&)>& usable);

  std::filesystem::path file_;
  std::mutex mutex_;
  bool was_read_ = false;
  Machines machines_;
};

}  // namespace dpt
