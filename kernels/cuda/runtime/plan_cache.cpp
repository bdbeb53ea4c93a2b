#include "kernels/cuda/runtime/plan_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "kernels/base/json_text.h"

namespace dpt {
namespace {

/// Version of the file format. Increment it when dpt gets new kernels or times them in another way,
/// because earlier choices are then invalid.
constexpr int kFormat = 3;

/// Holder of a lock file; other processes wait until it is released. If the file cannot be created
/// (a read-only folder), nothing is locked, and nothing can be written either.
class FileLock {
 public:
  explicit FileLock(const std::filesystem::path& file)
      : descriptor_(open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {
    if (descriptor_ >= 0) flock(descriptor_, LOCK_EX);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() {
    if (descriptor_ >= 0) close(descriptor_);
  }

 private:
  int descriptor_;
};

}  // namespace

PlanCache& PlanCache::of(const std::filesystem::path& file) {
  static std::mutex mutex;
  static std::map<std::filesystem::path, std::unique_ptr<PlanCache>> caches;
  std::error_code ignored;
  const std::filesystem::path absolute = std::filesystem::absolute(file, ignored);
  const std::lock_guard lock(mutex);
  auto& cache = caches[absolute.empty() ? file : absolute];
  if (!cache) cache = std::make_unique<PlanCache>(absolute.empty() ? file : absolute);
  return *cache;
}

PlanCache::Machines PlanCache::read(const std::filesystem::path& file) {
  std::ifstream in(file);
  nlohmann::json all;
  try {
    all = nlohmann::json::parse(in, nullptr, false);
  } catch (const std::ios_base::failure&) {
    return {};  // the path cannot be read as a file
  }
  if (!all.is_object() || all.value("format", nlohmann::json()) != kFormat) return {};
  const auto found = all.find("machines");
  if (found == all.end() || !found->is_object()) return {};
  Machines machines;
  for (const auto& [machine, problems] : found->items()) {
    if (!problems.is_object()) continue;
    for (const auto& [problem, plan] : problems.items()) {
      if (plan.is_string()) machines[machine][problem] = plan.get<std::string>();
    }
  }
  return machines;
}

std::string* PlanCache::find(const std::string& machine, const std::string& problem) {
  const auto problems = machines_.find(machine);
  if (problems == machines_.end()) return nullptr;
  const auto plan = problems->second.find(problem);
  return plan == problems->second.end() ? nullptr : &plan->second;
}

std::string PlanCache::decide(const std::string& machine, const std::string& problem,
                              const std::function<bool(const std::string&)>& usable,
                              const std::function<std::string()>& choose) {
  const std::lock_guard lock(mutex_);
  if (!was_read_) {
    machines_ = read(file_);
    was_read_ = true;
  }
  const std::string* kept = find(machine, problem);
  if (kept && usable(*kept)) return *kept;
  const std::string chosen = choose();
  if (chosen.empty()) return chosen;
  machines_[machine][problem] = chosen;
  merge_and_write(machine, problem, usable);
  return machines_[machine][problem];
}

void PlanCache::merge_and_write(const std::string& machine, const std::string& problem,
                                const std::function<bool(const std::string&)>& usable) {
  std::error_code ignored;
  std::filesystem::create_directories(file_.parent_path(), ignored);
  const FileLock lock(file_.string() + ".lock");
  for (auto& [other_machine, problems] : read(file_)) {
    for (auto& [other_problem, plan] : problems) {
      // Keep a choice that this process already uses, whatever others wrote meanwhile.
      const bool same = other_machine == machine && other_problem == problem;
      if (same && usable(plan)) {
        machines_[machine][problem] = plan;
      } else {
        machines_[other_machine].emplace(other_problem, plan);
      }
    }
  }
  const std::filesystem::path temporary = fmt::format("{}.{}", file_.string(), getpid());
  std::ofstream out(temporary);
  out << json_text(nlohmann::json{{"format", kFormat}, {"machines", machines_}}, 1) << '\n';
  out.close();
  if (out) {
    std::filesystem::rename(temporary, file_, ignored);
  } else {
    std::filesystem::remove(temporary, ignored);
  }
}

}  // namespace dpt
