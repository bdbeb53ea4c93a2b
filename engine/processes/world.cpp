#include "engine/processes/world.h"

#include <fmt/format.h>

namespace dpt {

std::string describe(const World& world) {
  const std::string launcher =
      world.launcher.empty() ? std::string() : fmt::format(" ({})", world.launcher);
  if (world.alone()) return fmt::format("one process{} on host {}", launcher, world.host);
  const bool is_ipv6 = world.coordinator.find(':') != std::string::npos;
  return fmt::format("rank {} of {}{}, local rank {} of {} on host {}, rank 0 at {}{}{}:{}",
                     world.rank, world.size, launcher, world.local_rank, world.local_size,
                     world.host, is_ipv6 ? "[" : "", world.coordinator, is_ipv6 ? "]" : "",
                     world.ports.empty() ? 0 : world.ports[0]);
}

}  // namespace dpt
