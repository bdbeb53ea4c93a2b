#include "engine/processes/process_devices.h"

#include <unistd.h>

#include <algorithm>

#include "engine/collectives/shard_tree.h"
#include "kernels/base/error.h"

namespace dpt {

std::vector<std::string> names_of(const std::vector<DeviceName>& devices) {
  std::vector<std::string> names;
  for (const DeviceName& device : devices) names.push_back(device.text());
  return names;
}

bool has_own_cores(int allowed, const World& world) {
  const auto machine = static_cast<std::int64_t>(sysconf(_SC_NPROCESSORS_ONLN));
  return std::int64_t{allowed} * world.local_size <= machine;
}

int own_part_of_cores(int allowed, const World& world) {
  if (has_own_cores(allowed, world)) return allowed;
  return static_cast<int>(
      std::max<std::int64_t>(1, even_part(allowed, world.local_size, world.local_rank).size()));
}

std::vector<DeviceName> devices_of_process(const std::vector<std::string>& asked,
                                           const World& world) {
  constexpr std::int64_t kAll = 1 << 20;
  const std::vector<DeviceName> all = resolve_devices(asked, kAll);
  if (asked.size() > 1 || (asked[0] != "auto" && asked[0] != "cuda")) return all;
  const auto count = static_cast<std::int64_t>(all.size());
  Range mine{0, count};
  if (all.front().kind == DeviceName::Kind::cpu) {
    mine.end = own_part_of_cores(static_cast<int>(count), world);
  } else if (count > 1) {
    mine = even_part(count, world.local_size, world.local_rank);
    if (mine.size() == 0) {
      fail(ErrorKind::device,
           "rank {} is process {} of {} on {}, where {} GPUs are visible: expected no more "
           "processes on a machine than it has GPUs",
           world.rank, world.local_rank + 1, world.local_size, world.host, count);
    }
  }
  return {all.begin() + mine.begin, all.begin() + mine.end};
}

std::string why_cores_are_short(const std::vector<DeviceName>& devices, int cores) {
  std::int64_t threads = 0;
  for (const DeviceName& device : devices) {
    if (device.kind == DeviceName::Kind::cpu) threads += device.threads;
  }
  if (threads <= cores) return {};
  return fmt::format(
      "the replicas on this machine compute with {} threads together, but share {} core{}: threads "
      "that wait for one another make steps many times slower. Use up to {} thread{} in all",
      threads, cores, cores == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
}

}  // namespace dpt
