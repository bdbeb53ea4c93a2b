// dpt devices: what this process may use.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "kernels/devices.h"
#include "kernels/error.h"

namespace dpt {

int run_devices(const DevicesOptions& options) {
  const CpuInfo cpu = cpu_info();
  const std::string no_cuda = cuda_unavailable_reason();
  if (options.json) {
    nlohmann::ordered_json out;
    out["cpu"] = {{"model", cpu.model},
                  {"instruction_set", cpu.instruction_set},
                  {"logical_cores_allowed", cpu.logical_allowed},
                  {"physical_cores_allowed", cpu.physical_allowed},
                  {"memory_bytes", cpu.memory_bytes}};
    out["cuda"] = nlohmann::ordered_json::array();
    if (!no_cuda.empty()) out["cuda_unavailable"] = no_cuda;
    out["auto"] = nlohmann::ordered_json::array();
    for (const DeviceName& device : resolve_devices({"auto"}, 1 << 20)) {
      out["auto"].push_back(device.text());
    }
    fmt::print("{}\n", out.dump());
    return 0;
  }
  fmt::print("cpu     {}, {} cores ({} physical) allowed, {}, {:.1f} GiB\n", cpu.model,
             cpu.logical_allowed, cpu.physical_allowed, cpu.instruction_set,
             static_cast<double>(cpu.memory_bytes) / (1 << 30));
  if (!no_cuda.empty()) fmt::print("cuda    none: {}\n", no_cuda);
  fmt::print("`devices: auto` here is {} replica(s) on the CPU\n",
             resolve_devices({"auto"}, 1 << 20).size());
  return 0;
}

}  // namespace dpt
