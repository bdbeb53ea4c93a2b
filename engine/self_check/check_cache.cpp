#include "engine/self_check/check_cache.h"

#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>

#include "kernels/base/error.h"
#include "kernels/base/file_io.h"
#include "kernels/base/json_text.h"

namespace dpt {
namespace {

/// Version of the file's format. Increment it when the check becomes stricter.
constexpr int kFormat = 3;

/// Maximum number of machines in the file. The file is emptied beyond it: programs and drivers
/// change, and their entries are never used again.
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

}  // namespace

std::set<std::string> CheckCache::checked(const std::string& machine) const {
  return operations_in(read(path_), machine);
}

std::string CheckCache::add(const std::string& machine,
                            const std::set<std::string>& operations) const {
  // Threads of a process take turns; of two processes that write at once, one may fail, and the
  // other has then written a good file.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (path_.empty()) return "neither XDG_CACHE_HOME nor HOME is set";
  Json machines = read(path_);
  std::set<std::string> all = operations_in(machines, machine);
  all.insert(operations.begin(), operations.end());
  if (machines.size() >= kMaxMachines && !machines.contains(machine)) machines = Json::object();
  machines[machine] = all;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  try {
    AtomicFile file{HeldPath(path_)};
    const std::string text = json_text(Json{{"format", kFormat}, {"machines", machines}}, 1) + "\n";
    file.write(std::as_bytes(std::span(text)));
    file.commit_unsynced();
  } catch (const Error& failure) {
    return entry_type(path_) == EntryType::file ? "" : failure.what();
  }
  return {};
}

}  // namespace dpt
