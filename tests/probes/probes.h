// What a GPU and its driver cost apart from any work: a dependency inside a captured graph, a copy
// between two graphs, a launch with and without programmatic dependency, and the bandwidth of
// copies. scripts/gpu/check runs them; the design of a training step follows from the numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dpt::probes {

struct Options {
  int device = 0;
  int repeats = 9;              ///< each figure is a median of so many
  int calls = 50;               ///< enqueued in sequence per repeat
  std::size_t bytes = 1 << 30;  ///< of a copy on the device; a quarter of it to and from the host
};

/// The median, the least and the largest of the repeats.
struct Spread {
  double median = 0, least = 0, most = 0;
};

/// What one call takes if many of them are enqueued in sequence, in microseconds.
struct Timing {
  std::string name;
  Spread device_us;  ///< on the GPU, which begins only when all calls are enqueued
  Spread host_us;    ///< to enqueue it
};

struct Bandwidth {
  std::string name;
  /// A copy on the device counts the bytes that it reads and those that it writes.
  Spread gb_per_s;
};

struct Results {
  std::string device;
  int multiprocessors = 0;
  std::int64_t l2_bytes = 0;
  int clock_khz = 0;          ///< the highest, not the present one
  int memory_clock_khz = 0;   ///< the highest
  bool programmatic = false;  ///< whether this GPU has programmatic dependent launch
  std::vector<Timing> timings;
  std::vector<Bandwidth> bandwidths;
  /// Microseconds that follow from the timings.
  double edge_us = 0, full_edge_us = 0, programmatic_edge_us = 0, full_programmatic_edge_us = 0;
  double round_trip_us = 0;  ///< a graph of one kernel: launch it and wait for it
};

/// Throws dpt::Error: of kind `device` if there is no such GPU, and if any call of CUDA fails.
Results run(const Options& options);

}  // namespace dpt::probes
