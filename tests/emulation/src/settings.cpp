// The settings, and the functions of emulation/control.h.
#include "settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "state.h"

namespace emulation {
namespace {

template <class T>
T number(std::string_view text, std::string_view what) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument(fmt::format("{}: expected a number, found '{}'", what, text));
  }
  return value;
}

Order parse_order(std::string_view text) {
  if (text == "forward") return {OrderKind::forward, 0};
  if (text == "reverse") return {OrderKind::reverse, 0};
  if (text.starts_with("random:")) {
    return {OrderKind::random, number<std::uint64_t>(text.substr(7), "DPT_EMULATED_ORDER")};
  }
  throw std::invalid_argument(fmt::format(
      "DPT_EMULATED_ORDER: expected forward, reverse or random:SEED, found '{}'", text));
}

Failure parse_failure(const std::string& text) {
  const std::size_t first = text.find(':'), second = text.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos) {
    throw std::invalid_argument(
        fmt::format("expected a failure as call:number:error, found '{}'", text));
  }
  Failure failure;
  failure.call = text.substr(0, first);
  if (const std::size_t at = failure.call.find('@'); at != std::string::npos) {
    failure.device = number<int>(failure.call.substr(at + 1), "the device of a failure");
    failure.call.resize(at);
  }
  failure.remaining =
      number<std::uint64_t>(text.substr(first + 1, second - first - 1), "the number of a failure");
  failure.error = text.substr(second + 1);
  if (failure.error.starts_with("cuda")) error_by_name(failure.error);
  if ((failure.error == kHang || failure.error == kSkip) && failure.call != "kernel") {
    throw std::invalid_argument(fmt::format("only a kernel can hang or be skipped: '{}'", text));
  }
  return failure;
}

Settings read_environment() {
  Settings result;
  const auto text = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  if (const auto value = text("DPT_EMULATED_GPUS"); !value.empty()) {
    result.devices = number<int>(value, "DPT_EMULATED_GPUS");
  }
  if (const auto value = text("DPT_EMULATED_MEMORY"); !value.empty()) {
    result.memory = number<std::size_t>(value, "DPT_EMULATED_MEMORY");
  }
  if (const auto value = text("DPT_EMULATED_COMPUTE"); !value.empty()) {
    const std::size_t point = std::min(value.find('.'), value.size());
    result.compute_major = number<int>(value.substr(0, point), "DPT_EMULATED_COMPUTE");
    result.compute_minor =
        number<int>(value.substr(std::min(point + 1, value.size())), "DPT_EMULATED_COMPUTE");
  }
  result.peers = text("DPT_EMULATED_PEERS") != "none";
  if (const auto value = text("DPT_EMULATED_MULTIPROCESSORS"); !value.empty()) {
    result.multiprocessors.clear();
    for (std::size_t at = 0; at <= value.size();) {
      const std::size_t comma = std::min(value.find(',', at), value.size());
      result.multiprocessors.push_back(
          number<int>(value.substr(at, comma - at), "DPT_EMULATED_MULTIPROCESSORS"));
      at = comma + 1;
    }
  }
  if (const auto value = text("DPT_EMULATED_ORDER"); !value.empty()) {
    result.order = parse_order(value);
  }
  if (const auto value = text("DPT_EMULATED_WRONG_MATMUL"); !value.empty()) {
    const std::size_t at = value.find('@');
    result.wrong_matmul = number<int>(value.substr(0, at), "DPT_EMULATED_WRONG_MATMUL");
    if (at != std::string::npos) {
      result.wrong_matmul_device = number<int>(value.substr(at + 1), "DPT_EMULATED_WRONG_MATMUL");
    }
  }
  std::string failures = text("DPT_EMULATED_FAIL");
  while (!failures.empty()) {
    const std::size_t comma = failures.find(',');
    result.failures.push_back(parse_failure(failures.substr(0, comma)));
    failures = comma == std::string::npos ? "" : failures.substr(comma + 1);
  }
  return result;
}

}  // namespace

Settings& settings() {
  static Settings instance = read_environment();
  return instance;
}

std::optional<std::string> take_failure(const char* call, int device) {
  auto& failures = settings().failures;
  for (auto failure = failures.begin(); failure != failures.end(); ++failure) {
    if (failure->call != call || (failure->device >= 0 && failure->device != device)) continue;
    if (failure->remaining > 1) {
      --failure->remaining;
      continue;
    }
    std::string error = failure->error;
    failures.erase(failure);
    return error;
  }
  return std::nullopt;
}

std::uint64_t mix(std::uint64_t value) {
  // The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

void set_order(Order order) {
  const Lock lock(state().mutex);
  settings().order = order;
}
Order order() {
  const Lock lock(state().mutex);
  return settings().order;
}

void set_devices(int count, std::size_t bytes) {
  State& all = state();
  const Lock lock(all.mutex);
  all.captures.clear();
  // Streams of a device that hangs still have work, and may wait for each other in a circle.
  for (const auto& [handle, stream] : all.streams) stream->queue.clear();
  all.streams.clear();
  all.events.clear();
  all.graphs.clear();
  all.execs.clear();
  all.dynamic_shared.clear();
  forget_all_memory();
  all.last_fault.clear();
  settings().devices = count;
  settings().memory = bytes;
  all.devices.clear();
}

void set_multiprocessors(int count) {
  const Lock lock(state().mutex);
  settings().multiprocessors = {count};
}

void fail(const std::string& what) {
  const Lock lock(state().mutex);
  settings().failures.push_back(parse_failure(what));
}
void clear_failures() {
  const Lock lock(state().mutex);
  settings().failures.clear();
}

void set_wrong_matmul(int algorithm, int device) {
  const Lock lock(state().mutex);
  settings().wrong_matmul = algorithm;
  settings().wrong_matmul_device = device;
}

void set_cudnn(Cudnn cudnn) {
  const Lock lock(state().mutex);
  settings().cudnn = cudnn;
}
Cudnn cudnn() {
  const Lock lock(state().mutex);
  return settings().cudnn;
}

std::string last_fault() {
  const Lock lock(state().mutex);
  return state().last_fault;
}
GraphShape last_graph() {
  const Lock lock(state().mutex);
  return state().last_graph;
}
std::size_t work_done() {
  const Lock lock(state().mutex);
  return state().work_done;
}
std::size_t work_waiting() {
  const Lock lock(state().mutex);
  std::size_t waiting = 0;
  for (const auto& [handle, stream] : state().streams) waiting += stream->queue.size();
  for (const Device& device : state().devices) {
    if (device.legacy) waiting += device.legacy->queue.size();
  }
  return waiting;
}
std::size_t memory_in_use(int device) {
  const Lock lock(state().mutex);
  const auto& devices = state().devices;
  return static_cast<std::size_t>(device) < devices.size() ? devices[device].used : 0;
}

}  // namespace emulation
