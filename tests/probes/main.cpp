// gpu_probes [--device N] [--repeats N] [--calls N] [--mebibytes N]: prints the results of the
// probes as one line of JSON. Exit code 4 if there is no such GPU, 1 if a CUDA call failed.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/base/error.h"
#include "kernels/base/json_text.h"
#include "tests/probes/probes.h"

namespace {

using dpt::probes::Options;
using dpt::probes::Results;
using Json = nlohmann::ordered_json;

Json json_of(const dpt::probes::Spread& spread) {
  return {{"median", spread.median}, {"least", spread.least}, {"most", spread.most}};
}

Json json_of(const Results& results) {
  Json out = {{"device", results.device},
              {"multiprocessors", results.multiprocessors},
              {"l2_bytes", results.l2_bytes},
              {"clock_khz", results.clock_khz},
              {"memory_clock_khz", results.memory_clock_khz},
              {"programmatic", results.programmatic}};
  for (const auto& timing : results.timings) {
    out["timings"].push_back({{"name", timing.name},
                              {"device_us", json_of(timing.device_us)},
                              {"host_us", json_of(timing.host_us)}});
  }
  for (const auto& bandwidth : results.bandwidths) {
    out["bandwidths"].push_back(
        {{"name", bandwidth.name}, {"gb_per_s", json_of(bandwidth.gb_per_s)}});
  }
  Json& edges = out["edge_us"];
  edges["1 block"] = results.edge_us;
  edges["full"] = results.full_edge_us;
  if (results.programmatic) {
    edges["1 block, programmatic"] = results.programmatic_edge_us;
    edges["full, programmatic"] = results.full_programmatic_edge_us;
  }
  out["round_trip_us"] = results.round_trip_us;
  return out;
}

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const int value = i + 1 < argc ? std::atoi(argv[i + 1]) : -1;
    if (name == "--device" && value >= 0) {
      options.device = value;
    } else if (name == "--repeats" && value > 0) {
      options.repeats = value;
    } else if (name == "--calls" && value > 0) {
      options.calls = value;
    } else if (name == "--mebibytes" && value > 0) {
      options.bytes = static_cast<std::size_t>(value) << 20;
    } else {
      dpt::fail(dpt::ErrorKind::usage,
                "expected --device, --repeats, --calls or --mebibytes and a number, found '{}'",
                name);
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    fmt::print("{}\n", dpt::json_text(json_of(dpt::probes::run(options_of(argc, argv)))));
    return 0;
  } catch (const dpt::Error& error) {
    fmt::print(stderr, "gpu_probes: {}\n", error.what());
    return static_cast<int>(error.kind());
  }
}
