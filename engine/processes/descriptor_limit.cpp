#include "engine/processes/descriptor_limit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "kernels/devices.h"

namespace dpt {
namespace {

// Upper bound for a channel: its event loop uses three descriptors, and its connection one.
constexpr int kChannel = 8;
// Unidentified connections that may be open at once, on the control channel or while the links are
// being connected.
constexpr int kStrangers = 64;
// Files of data, checkpoints and logs, in addition to one open file for each thread.
constexpr int kOwnFiles = 32;
// Processes of dpt have higher descriptors only if they inherited them.
constexpr int kMaxCounted = 1 << 16;

int open_descriptors(rlim_t limit) {
  const int end = static_cast<int>(std::min<rlim_t>(limit, kMaxCounted));
  int count = 0;
  for (int number = 0; number < end; ++number) count += fcntl(number, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

}  // namespace

int descriptors_to_join(int rank, int size) {
  return rank == 0 ? 2 * kChannel + size : kChannel;
}

int descriptors_to_run(int rank, int size) {
  // Two sets of links connect this process to each of the others.
  return descriptors_to_join(rank, size) + 2 * (size - 1) + kStrangers + kOwnFiles +
         cpu_info().logical_allowed;
}

std::string make_room_for_descriptors(int more, const std::string& who) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  const rlim_t needed = static_cast<rlim_t>(open_descriptors(limit.rlim_cur) + more);
  if (limit.rlim_cur >= needed) return {};
  const rlimit raised{std::min(needed, limit.rlim_max), limit.rlim_max};
  if (limit.rlim_max >= needed && setrlimit(RLIMIT_NOFILE, &raised) == 0) return {};
  return fmt::format(
      "{} up to {} open files and connections, but this system allows {} (ulimit -n): raise the "
      "limit (ulimit -n {}; for a container: --ulimit nofile; for a service: LimitNOFILE), or use "
      "fewer processes",
      who, needed, limit.rlim_max, needed);
}

}  // namespace dpt
