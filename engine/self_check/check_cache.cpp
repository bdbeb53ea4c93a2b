#include "engine/self_check/check_cache.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/base/file_io.h"
#include "kernels/base/json_text.h"
#include "kernels/base/user_cache.h"

namespace dpt {
namespace {

/// Version of the file's format. Increment it when the check becomes stricter.
constexpr int kFormat = 3;

/// Maximum number of machines in the file. With more of them, the file is emptied: programs and
/// drivers change, and entries for old ones are never used again.
constexpr std::size_t kMaxMachines = 32;

using Json = nlohmann::json;

Json read(const std::string& path) {
  if (path.empty() || entry_type(path) != EntryType::file) return Json::object();
  try {
    const Json all = Json::parse(read_whole_file(path), nullptr, false);
    if (all.is_object() && all.value("format", Json()) == kFormat && all.contains("machines") &&
        all["machines"].is_object()) {
      return all["machines"];
    }
  } catch (const Error&) {
    // Treat an unreadable file as empty.
  }
  return Json::object();
}

/// Returns the operations of a machine.
std::set<std::string> operations_in(const Json& machines, const std::string& machine) {
  std::set<std::string> operations;
  const auto found = machines.find(machine);
  if (found == machines.end() || !found->is_array()) return operations;
  for (const Json& each : *found) {
    if (each.is_string()) operations.insert(each.get<std::string>());
  }
  return operations;
}

/// Adds operations to the file. Returns the reason if the file cannot be written, otherwise an
/// empty string.
std::string try_add(const std::string& path, const std::string& machine,
                    const std::set<std::string>& operations) {
  Json machines = read(path);
  std::set<std::string> all = operations_in(machines, machine);
  all.insert(operations.begin(), operations.end());
  if (machines.size() >= kMaxMachines && !machines.contains(machine)) machines = Json::object();
  machines[machine] = all;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return fmt::format("{}: cannot create the folder: {}", folder.string(), error.message());
  }
  try {
    AtomicFile file{HeldPath(path)};
    const std::string text = json_text(Json{{"format", kFormat}, {"machines", machines}}, 1) + "\n";
    file.write(std::as_bytes(std::span(text)));
    file.commit_unsynced();
  } catch (const Error& failure) {
    return failure.what();
  }
  return {};
}

}  // namespace

std::set<std::string> CheckCache::checked(const std::string& machine) const {
  return operations_in(read(path_), machine);
}

std::string CheckCache::add(const std::string& machine,
                            const std::set<std::string>& operations) const {
  static std::mutex mutex;  // threads of a process take turns
  const std::lock_guard lock(mutex);
  if (path_.empty()) return no_user_cache_text();
  // A try may fail because another process writes at the same time.
  constexpr int kTries = 3;
  std::string problem;
  for (int k = 0; k < kTries; ++k) {
    problem = try_add(path_, machine, operations);
    if (problem.empty()) return {};
  }
  const std::set<std::string> saved = checked(machine);
  const bool has_all =
      std::includes(saved.begin(), saved.end(), operations.begin(), operations.end());
  return has_all ? std::string() : problem;
}

}  // namespace dpt
