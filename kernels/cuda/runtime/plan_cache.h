// The file in which timed choices between implementations are kept, so that only the first run on a
// machine times them.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace dpt {

/// JSON: {"format": 3, "machines": {machine: {problem: plan}}}. Losing it is harmless: a file that
/// is missing, damaged or of another format counts as empty and is written anew; one that cannot be
/// written leaves the choices to this process. The file is replaced as a whole (temporary file and
/// rename), and processes that share it take turns (lock file next to it) and keep each other's
/// choices. Any thread may call.
class PlanCache {
 public:
  /// The one object of this process for the file.
  static PlanCache& of(const std::filesystem::path& file);

  explicit PlanCache(std::filesystem::path file) : file_(std::move(file)) {}

  /// The name of the plan for the problem: what was kept, if `usable` accepts it, or else what
  /// `choose` returns, which is then kept unless it is empty (no choice that holds). If another
  /// process has chosen first, its choice is taken if it is usable, so that replicas agree. Calls
  /// of other threads wait meanwhile: replicas on equal GPUs share one choice.
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
