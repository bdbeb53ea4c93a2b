// The costs of a GPU and its driver apart from any work: a dependency inside a captured graph, a
// copy between two graphs, a launch with and without programmatic dependency, and the bandwidth of
// copies. scripts/gpu/check runs them; the design of a training step relies on the numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dpt::probes {

struct Options {
  int device = 0;
  int repeats = 9;  ///< number of repeats; each figure is their median
  int calls = 50;   ///< calls enqueued in sequence per repeat
  std::size_t bytes =
      1 << 30;  ///< size of a copy on the device; copies to and from the host have a quarter of it
};

/// Median, minimum and maximum of the repeats.
struct Spread {
  double median = 0, least = 0, most = 0;
};

/// The time of one call in microseconds, if many are enqueued in sequence.
struct Timing {
  std::string name;
  Spread device_us;  ///< time on the GPU, which begins only when all calls are enqueued
  Spread host_us;    ///< time that the host takes to enqueue it
};

struct Bandwidth {
  std::string name;
  /// Bandwidth; a copy on the device counts both the bytes read and the bytes written.
  Spread gb_per_s;
};

struct Results {
  std::string device;
  int multiprocessors = 0;
  std::int64_t l2_bytes = 0;
  int clock_khz = 0;          ///< maximum, not the current value
  int memory_clock_khz = 0;   ///< maximum
  bool programmatic = false;  ///< true if this GPU supports programmatic dependent launch
  std::vector<Timing> timings;
  std::vector<Bandwidth> bandwidths;
  /// Microseconds derived from the timings.
  double edge_us = 0, full_edge_us = 0, programmatic_edge_us = 0, full_programmatic_edge_us = 0;
  double round_trip_us = 0;  ///< launching a graph of one kernel and waiting for it
};

/// Runs the probes. Throws dpt::Error if a CUDA call fails; its kind is `device` if there is no
/// such GPU.
Results run(const Options& options);

}  // namespace dpt::probes
