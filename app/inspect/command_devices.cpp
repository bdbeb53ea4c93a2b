// dpt devices: lists the devices that this process may use, or checks them (--check).
#include "app/inspect/command_devices.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "app/base/command_support.h"
#include "app/inspect/devices_check.h"
#include "engine/processes/detect_world.h"
#include "engine/processes/world.h"
#include "kernels/base/error.h"
#include "kernels/base/json_text.h"
#include "kernels/base/text.h"
#include "kernels/cuda_info.h"
#include "kernels/devices.h"

namespace dpt {
namespace {

/// Returns the World that a run would detect.
World world_of_run() {
  World world = detect_world();
  require_started_tasks(world);
  return world;
}

/// Returns the World as JSON, or the error with which a run would refuse it.
nlohmann::ordered_json world_json() {
  try {
    const World world = world_of_run();
    nlohmann::ordered_json out = {{"rank", world.rank},
                                  {"size", world.size},
                                  {"local_rank", world.local_rank},
                                  {"local_size", world.local_size},
                                  {"host", world.host},
                                  {"launcher", world.launcher}};
    if (!world.alone()) {
      out["coordinator"] = world.coordinator;
      out["ports"] = world.ports;
      out["job"] = world.job;
    }
    return out;
  } catch (const Error& error) {
    return {{"refused", error.what()}};
  }
}

std::string world_text() {
  try {
    return describe(world_of_run());
  } catch (const Error& error) {
    return fmt::format("refused: {}", error.what());
  }
}

}  // namespace

int run_devices(const DevicesOptions& options) {
  if (options.check) return check_devices(options);
  const CpuInfo cpu = cpu_info();
  const CudaInfo& cuda = cuda_info();
  const std::vector<std::string> libraries = cuda_libraries();
  if (options.json) {
    nlohmann::ordered_json out;
    out["cpu"] = {{"model", cpu.model},
                  {"instruction_set", cpu.instruction_set},
                  {"bf16", cpu.bf16},
                  {"bf16_is_slower_than_fp32", cpu.bf16 && !cpu.bf16_is_faster},
                  {"logical_cores_allowed", cpu.logical_allowed},
                  {"physical_cores_allowed", cpu.physical_allowed},
                  {"memory_bytes", cpu.memory_bytes}};
    out["cuda"] = nlohmann::ordered_json::array();
    for (const CudaDeviceInfo& gpu : cuda.devices) {
      out["cuda"].push_back({{"name", gpu.name},
                             {"compute_capability", gpu.compute_capability},
                             {"multiprocessors", gpu.multiprocessors},
                             {"memory_bytes", gpu.memory_bytes},
                             {"peers", gpu.peers}});
      if (!gpu.unusable.empty()) out["cuda"].back()["unusable"] = gpu.unusable;
    }
    if (!cuda.unavailable.empty()) out["cuda_unavailable"] = cuda.unavailable;
    out["cuda_driver"] = cuda.driver;
    out["cuda_runtime"] = cuda.runtime;
    out["cuda_libraries"] = libraries;
    out["auto"] = nlohmann::ordered_json::array();
    try {
      for (const DeviceName& device : resolve_devices({"auto"}, 1 << 20)) {
        out["auto"].push_back(device.text());
      }
    } catch (const Error& error) {
      out["auto_refused"] = error.what();
    }
    out["world"] = world_json();
    fmt::print("{}\n", json_text(out));
    return 0;
  }
  fmt::print("cpu     {}, {} ({} physical), {}, bf16: {}, {:.1f} GiB\n", cpu.model,
             counted(cpu.logical_allowed, "usable core"), cpu.physical_allowed, cpu.instruction_set,
             cpu.bf16 ? "yes" : "no", static_cast<double>(cpu.memory_bytes) / (1 << 30));
  if (cpu.bf16_is_faster) {
    fmt::print("        train.precision=bf16 is faster than fp32 on this CPU\n");
  } else if (cpu.bf16) {
    fmt::print("        {}\n", kSlowBf16);
  }
  for (std::size_t i = 0; i < cuda.devices.size(); ++i) {
    const CudaDeviceInfo& gpu = cuda.devices[i];
    fmt::print(
        "cuda:{}  {}, compute capability {}, {} multiprocessors, {:.1f} GiB{}\n", i, gpu.name,
        gpu.compute_capability, gpu.multiprocessors,
        static_cast<double>(gpu.memory_bytes) / (1 << 30),
        gpu.peers.empty() ? "" : fmt::format(", peer access to {}", fmt::join(gpu.peers, ", ")));
  }
  if (!cuda.unavailable.empty()) fmt::print("cuda    none: {}\n", cuda.unavailable);
  if (!cuda.driver.empty()) {
    fmt::print("        driver for CUDA {}, runtime {}{}{}\n", cuda.driver, cuda.runtime,
               libraries.empty() ? "" : ", ", fmt::join(libraries, ", "));
  }
  try {
    const auto replicas = resolve_devices({"auto"}, 1 << 20);
    fmt::print("`devices: auto` means {} on the {} here\n", counted(replicas.size(), "replica"),
               replicas[0].traits().noun);
  } catch (const Error& error) {
    fmt::print("`devices: auto` fails here: {}\n", error.what());
  }
  fmt::print("world   {}\n", world_text());
  return 0;
}

}  // namespace dpt
