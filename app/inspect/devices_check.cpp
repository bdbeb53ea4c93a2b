// dpt devices --check: checks the kernels of all devices for the operations of the zoo's networks.
// It is an acceptance test of a machine or, with --seconds, a test under load.
#include "app/inspect/devices_check.h"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include <fmt/ranges.h>

#include "app/base/zoo_plan.h"
#include "engine/self_check/operation_check.h"
#include "engine/self_check/self_check.h"
#include "kernels/base/json_text.h"
#include "kernels/base/start_thread.h"
#include "kernels/base/text.h"
#include "kernels/devices.h"

namespace dpt {
namespace {

using Clock = std::chrono::steady_clock;

/// Networks whose layers differ most from each other, at the image sizes of their papers.
constexpr ZooInput kNetworks[] = {
    {"lenet", "[1, 28, 28]"},           {"resnet20", "[3, 32, 32]"},
    {"resnet50", "[3, 224, 224]"},      {"vgg11", "[3, 224, 224]"},
    {"mobilenet_v2", "[3, 224, 224]"},  {"mobilenet_v3_small", "[3, 224, 224]"},
    {"convnext_tiny", "[3, 224, 224]"},
};
constexpr std::int64_t kBatch = 32;

/// Returns the distinct operations of all networks in these precisions.
std::vector<NamedOperation> operations_in(const std::vector<std::string>& precisions) {
  std::vector<NamedOperation> all;
  for (const std::string& precision : precisions) {
    for (const ZooInput& network : kNetworks) {
      add_operations(zoo_plan(network, kBatch, precision), kBatch, 0, all);
    }
  }
  return all;
}

std::vector<std::string> precisions_of(const DeviceName& device) {
  if (device.kind == DeviceName::Kind::cuda) return {"fp32", "tf32", "bf16"};
  if (cpu_info().bf16) return {"fp32", "bf16"};
  return {"fp32"};
}

/// Returns the devices to check: the given ones, or the CPU and every GPU. For a test under load,
/// the CPU becomes a device for each core.
std::vector<DeviceName> devices_of(const DevicesOptions& options) {
  std::vector<std::string> names;
  std::istringstream given(options.devices);
  for (std::string name; std::getline(given, name, ',');) names.push_back(name);
  if (names.empty()) {
    names.assign(options.seconds > 0 ? static_cast<std::size_t>(cpu_info().physical_allowed) : 1,
                 "cpu");
    for (std::size_t k = 0; k < cuda_info().devices.size(); ++k) {
      if (cuda_info().devices[k].unusable.empty()) names.push_back(fmt::format("cuda:{}", k));
    }
  }
  return resolve_devices(names, 1 << 20);
}

/// Result of one device.
struct DeviceCheck {
  std::string device, kind;
  std::int64_t operations = 0, passes = 0;
  double seconds = 0;
  std::vector<OperationCheck> wrong;
  std::string failure;  ///< error of the device that ended the check; else empty

  bool has_passed() const { return wrong.empty() && failure.empty(); }
};

/// Checks all operations repeatedly until `end`, in at least `min_passes` passes. Compares the bits
/// of every pass with those of the first.
void check_device(const DeviceName& device, Clock::time_point end, std::int64_t min_passes,
                  DeviceCheck& result) {
  const auto begun = Clock::now();
  try {
    BackendOptions options;
    options.exact = true;
    const std::unique_ptr<Backend> backend = make_backend(device, options);
    const std::vector<NamedOperation> all = operations_in(precisions_of(device));
    result.operations = static_cast<std::int64_t>(all.size());
    std::vector<std::uint64_t> first(all.size());
    std::set<std::size_t> reported;
    const auto continues = [&] { return result.passes < min_passes || Clock::now() < end; };
    do {
      for (std::size_t k = 0; k < all.size() && continues(); ++k) {
        OperationCheck check = check_operation(*backend, all[k].desc, true);
        if (result.passes == 0) first[k] = check.bits;
        if (check.problem.empty() && check.bits != first[k]) {
          check.problem =
              fmt::format("the bits of pass {} differ from those of the first", result.passes + 1);
        }
        if (!check.problem.empty() && reported.insert(k).second) {
          result.wrong.push_back(std::move(check));
        }
      }
      if (continues()) ++result.passes;
    } while (continues());
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - begun).count();
}

nlohmann::ordered_json json_of(const DeviceCheck& check) {
  nlohmann::ordered_json wrong = nlohmann::ordered_json::array();
  for (const OperationCheck& each : check.wrong) {
    wrong.push_back({{"operation", each.operation},
                     {"implementation", each.implementation},
                     {"problem", each.problem}});
  }
  nlohmann::ordered_json out = {{"device", check.device},         {"kind", check.kind},
                                {"operations", check.operations}, {"passes", check.passes},
                                {"seconds", check.seconds},       {"wrong", wrong}};
  if (!check.failure.empty()) out["failure"] = check.failure;
  return out;
}

void print_text(const DeviceCheck& check) {
  std::string verdict = "passed";
  if (!check.wrong.empty()) verdict = fmt::format("{} FAILED", check.wrong.size());
  if (!check.failure.empty()) verdict = "the device FAILED";
  fmt::print("{:<7}  {}: {}, {} {}: {}, {:.1f} s\n", check.device, check.kind,
             counted(check.operations, "operation"), check.passes,
             check.passes == 1 ? "pass" : "passes", verdict, check.seconds);
  for (const OperationCheck& each : check.wrong) {
    fmt::print("         {} ({}): {}\n", each.operation, each.implementation, each.problem);
  }
  if (!check.failure.empty()) fmt::print("         {}\n", check.failure);
}

}  // namespace

int check_devices(const DevicesOptions& options) {
  const std::vector<DeviceName> devices = devices_of(options);
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(options.seconds));
  const std::int64_t min_passes = options.seconds > 0 ? 2 : 1;  // --seconds compares passes
  std::vector<DeviceCheck> checks(devices.size());
  std::vector<std::thread> threads;
  for (std::size_t k = 0; k < devices.size(); ++k) {
    checks[k].device = devices[k].text();
    checks[k].kind = kind_of(devices[k]);
    threads.push_back(start_thread("check of " + devices[k].text(), [&, k] {
      check_device(devices[k], end, min_passes, checks[k]);
    }));
  }
  for (std::thread& thread : threads) thread.join();

  bool all_passed = true;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const DeviceCheck& check : checks) {
    all_passed = all_passed && check.has_passed();
    if (options.json) list.push_back(json_of(check));
    if (!options.json) print_text(check);
  }
  if (options.json) {
    const nlohmann::ordered_json out = {{"passed", all_passed}, {"devices", list}};
    fmt::print("{}\n", json_text(out));
  }
  return all_passed ? 0 : static_cast<int>(ErrorKind::device);
}

}  // namespace dpt
