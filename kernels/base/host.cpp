#include "kernels/base/host.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

namespace dpt::host_system {
namespace {

// Limit that is far above any memory, but so low that adding used bytes to it does not overflow.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;

/// Returns the first line of a file, or nothing.
std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

/// Returns the number at the beginning of a file; nothing for "max" or a missing file.
std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

/// Returns the value of a "key: value" or "key value" line.
std::optional<std::string> field_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    std::size_t at = key.size();
    if (at < line.size() && line[at] != ' ' && line[at] != '\t' && line[at] != ':') continue;
    at = line.find_first_not_of(" \t:", at);
    return at == std::string::npos ? std::string() : line.substr(at);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> number_field(const std::string& path, const std::string& key) {
  const auto text = field_in(path, key);
  if (!text) return std::nullopt;
  std::istringstream in(*text);
  std::uint64_t value = 0;
  if (!(in >> value)) return std::nullopt;
  return value;
}

/// Returns the folders of this process's control group for a v1 controller ("" = the v2 tree),
/// innermost first. Inside a container, the path that the kernel reports may not be visible. The
/// root of the visible tree is then the container's group. So it is always the last folder.
std::vector<std::string> group_folders(const std::string& root, const std::string& controller) {
  std::string path;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "4:cpu,cpuacct:/user.slice" (v1) or "0::/user.slice" (v2).
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find("," + controller + ",") == std::string::npos) continue;
    path = line.substr(second + 1);
    break;
  }
  const std::string base =
      root + (controller.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller);
  std::vector<std::string> folders;
  while (!path.empty() && path != "/") {
    folders.push_back(base + path);
    path.resize(path.rfind('/'));
  }
  folders.push_back(base);
  return folders;
}

/// Lowers the known limit and the known free memory to those of a group, if the group's are
/// smaller.
void narrow(Memory& memory, const std::string& folder, const char* limit_file,
            const char* usage_file, const char* cache_key) {
  const auto limit = number_in(folder + "/" + limit_file);
  if (!limit || *limit < 0) return;
  const auto ceiling = static_cast<std::uint64_t>(*limit);
  memory.total = std::min(memory.total, ceiling);
  const auto usage = number_in(folder + "/" + usage_file);
  if (!usage) return;
  // The file cache counts as used, but the kernel frees it under pressure.
  const std::uint64_t cache = number_field(folder + "/memory.stat", cache_key).value_or(0);
  const auto used = static_cast<std::uint64_t>(*usage);
  const std::uint64_t needed = used > cache ? used - cache : 0;
  memory.free = std::min(memory.free, ceiling > needed ? ceiling - needed : 0);
}

}  // namespace

std::vector<int> allowed_cpus() {
  // The mask's size is not known in advance: machines with more than 1024 processors exist.
  for (int bits = 1024; bits <= (1 << 20); bits *= 2) {
    cpu_set_t* mask = CPU_ALLOC(static_cast<std::size_t>(bits));
    const std::size_t size = CPU_ALLOC_SIZE(static_cast<std::size_t>(bits));
    const bool got = sched_getaffinity(0, size, mask) == 0;
    std::vector<int> cpus;
    for (int cpu = 0; got && cpu < bits; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), size, mask)) cpus.push_back(cpu);
    }
    CPU_FREE(mask);
    if (got) return cpus;
  }
  return {0};
}

int physical_cores(const std::vector<int>& cpus, const std::string& root) {
  std::set<std::pair<std::string, std::string>> cores;
  for (const int cpu : cpus) {
    const std::string folder =
        root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const auto package = first_line(folder + "physical_package_id");
    const auto core = first_line(folder + "core_id");
    if (!package || !core) {
      cores.emplace("processor", std::to_string(cpu));
      continue;
    }
    // Core numbers repeat between packages, and on some machines between dies of one package.
    const std::string die = first_line(folder + "die_id").value_or("0");
    cores.emplace(*package + "." + die, *core);
  }
  return std::max<int>(1, static_cast<int>(cores.size()));
}

int quota_cpus(const std::string& root) {
  std::int64_t limit = 0;
  const auto narrow_to = [&](std::int64_t quota, std::int64_t period) {
    if (quota <= 0 || period <= 0) return;
    const std::int64_t cpus = std::max<std::int64_t>(1, quota / period);
    limit = limit == 0 ? cpus : std::min(limit, cpus);
  };
  for (const std::string& folder : group_folders(root, "")) {
    std::ifstream file(folder + "/cpu.max");
    std::int64_t quota = 0, period = 0;
    if (file >> quota >> period) narrow_to(quota, period);
  }
  for (const std::string& folder : group_folders(root, "cpu")) {
    narrow_to(number_in(folder + "/cpu.cfs_quota_us").value_or(0),
              number_in(folder + "/cpu.cfs_period_us").value_or(0));
  }
  return static_cast<int>(limit);
}

Memory memory(const std::string& root) {
  const std::string info = root + "/proc/meminfo";
  // Without /proc, or without a free descriptor to read it, no limit is known.
  Memory found{number_field(info, "MemTotal").value_or(kNoLimit / 1024) * 1024,
               number_field(info, "MemAvailable").value_or(kNoLimit / 1024) * 1024};
  for (const std::string& folder : group_folders(root, "")) {
    narrow(found, folder, "memory.max", "memory.current", "inactive_file");
  }
  for (const std::string& folder : group_folders(root, "memory")) {
    narrow(found, folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
  }
  found.free = std::min(found.free, found.total);
  return found;
}

std::int64_t most_threads(const std::string& root) {
  std::int64_t most = 0;
  for (const char* controller : {"", "pids"}) {
    for (const std::string& folder : group_folders(root, controller)) {
      const auto limit = number_in(folder + "/pids.max");
      if (limit && *limit > 0) most = most == 0 ? *limit : std::min(most, *limit);
    }
  }
  return most;
}

std::string processor_model(const std::string& root) {
  return field_in(root + "/proc/cpuinfo", "model name").value_or("unknown processor");
}

}  // namespace dpt::host_system
