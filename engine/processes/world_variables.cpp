#include "engine/processes/world_variables.h"

#include <fmt/ranges.h>

#include <charconv>
#include <limits>

#include "kernels/base/error.h"

namespace dpt::launchers {
namespace {

/// First port of the blocks (ports_of), and their number. They are below the ports that systems
/// assign to connections (from 32768).
constexpr int kFirstPort = 20000, kPortBlocks = 1125;

/// Returns the FNV-1a hash, which is the same on all machines; std::hash need not be.
std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

}  // namespace

bool is_set(const Environment& environment, const char* name) {
  return environment(name) != nullptr;
}

std::string env_text(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value ? value : "";
}

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

int env_number(const Environment& environment, const char* who, const char* name, int least,
               int most) {
  const std::string text = env_text(environment, name);
  const std::optional<std::int64_t> value = number_in(text);
  if (!value || *value < least || *value > most) {
    fail(ErrorKind::usage, "{}: expected a whole number from {}{} in the variable {}, found '{}'",
         who, least, most < std::numeric_limits<int>::max() ? fmt::format(" to {}", most) : "",
         name, text);
  }
  return static_cast<int>(*value);
}

void check_all_set(const Environment& environment, const char* who,
                   const std::vector<const char*>& names, const std::string& advice) {
  std::vector<std::string> found, missing;
  for (const char* name : names) {
    if (is_set(environment, name)) {
      found.push_back(fmt::format("{}={}", name, env_text(environment, name)));
    } else {
      missing.emplace_back(name);
    }
  }
  if (missing.empty()) return;
  fail(ErrorKind::usage, "{}: found {} in the environment, but not {}: {}", who,
       fmt::join(found, ", "), fmt::join(missing, ", "), advice);
}

bool any_set(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (is_set(environment, name)) return true;
  }
  return false;
}

bool is_leftover_of_one(const Environment& environment, const PlaceVariables& names) {
  const auto is_unset_or = [&](const char* name, const char* value) {
    return !is_set(environment, name) || env_text(environment, name) == value;
  };
  const bool has_rank = is_set(environment, names.rank), has_size = is_set(environment, names.size);
  const bool is_complete = has_rank && has_size && is_set(environment, names.local_rank) &&
                           is_set(environment, names.local_size);
  return !is_complete && (has_size || !has_rank) && is_unset_or(names.rank, "0") &&
         is_unset_or(names.size, "1") && is_unset_or(names.local_rank, "0") &&
         is_unset_or(names.local_size, "1");
}

void check_below(const char* who, const char* index_name, int index, const char* size_name,
                 int size) {
  if (index < size) return;
  fail(ErrorKind::usage, "{}: {}={} is not below {}={}; numbering starts at 0", who, index_name,
       index, size_name, size);
}

void check_local_size(const char* who, const char* local_name, int local_size,
                      const char* size_name, int size) {
  if (local_size <= size) return;
  fail(ErrorKind::usage, "{}: {}={} (processes on this machine) is more than {}={} (all processes)",
       who, local_name, local_size, size_name, size);
}

void read_local_place(World& world, const Environment& environment, const char* who,
                      const PlaceVariables& names) {
  world.local_size = env_number(environment, who, names.local_size, 1);
  world.local_rank = env_number(environment, who, names.local_rank, 0);
  check_below(who, names.local_rank, world.local_rank, names.local_size, world.local_size);
  check_local_size(who, names.local_size, world.local_size, names.size, world.size);
}

void read_place(World& world, const Environment& environment, const char* who,
                const PlaceVariables& names) {
  world.size = env_number(environment, who, names.size, 1);
  world.rank = env_number(environment, who, names.rank, 0);
  check_below(who, names.rank, world.rank, names.size, world.size);
}

void read_coordinator(World& world, const char* option, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (in_brackets) host = host.substr(1, host.size() - 2);
  const std::optional<std::int64_t> port =
      colon == std::string::npos ? std::nullopt : number_in(text.substr(colon + 1));
  if (!port || *port < 1 || *port > kLastPort || host.empty() ||
      host.find_first_of(" \t[]/") != std::string::npos ||
      (!in_brackets && host.find(':') != std::string::npos)) {
    fail(ErrorKind::usage,
         "{}: expected HOST:PORT, the machine of rank 0 and a free port from 1 to {} on it, e.g. "
         "node0:29400 or [fd00::1]:29400, found '{}'",
         option, kLastPort, text);
  }
  world.coordinator = host;
  world.ports = {static_cast<int>(*port)};
}

std::vector<int> ports_of(const World& world) {
  const std::uint64_t hash = fnv1a(world.launcher + " " + world.job);
  const int block = static_cast<int>((hash ^ (hash >> 32)) % kPortBlocks);
  std::vector<int> ports;
  for (int i = 0; i < kPortCount; ++i) ports.push_back(kFirstPort + block * kPortCount + i);
  return ports;
}

bool set_coordinator(World& world, const Environment& environment) {
  if (is_set(environment, "DPT_COORDINATOR")) {
    read_coordinator(world, "DPT_COORDINATOR", env_text(environment, "DPT_COORDINATOR"));
    return true;
  }
  if (world.local_size != world.size) return false;
  world.coordinator = "127.0.0.1";
  world.ports = ports_of(world);
  return true;
}

bool is_this_machine(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

}  // namespace dpt::launchers
