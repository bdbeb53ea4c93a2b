// The measurements of a replica (engine/measurements/measurement.h), as its step calls them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/measurements/measurement.h"
#include "engine/replica/replica_memory.h"

namespace dpt {

/// Used by the thread of its backend.
class Measurements {
 public:
  /// `logs`: this replica's results are logged. The others measure parts of the batch only.
  Measurements(Backend& backend, const Job& job, ReplicaMemory& memory, bool logs);

  /// True if steps measure parts of the batch.
  bool measures_parts() const { return part_floats_ > 0; }
  /// True if logged steps measure the whole batch.
  bool measures_batch() const { return batch_floats_.bytes() > 0; }

  /// Floats after the metrics of each gradient buffer.
  std::int64_t part_floats() const { return part_floats_; }
  /// Floats of the last step that measured the whole batch.
  const DeviceMemory& batch_floats() const { return batch_floats_; }

  /// Measures one bucket of a part. `floats` of `part` are all part_floats() of its buffer.
  void measure_bucket(PartGradient part, std::size_t bucket);
  /// Measures all buckets.
  void measure_part(const PartGradient& part);
  /// Calls Measurement::measure. REQUIRES: measures_batch().
  void measure_batch(DevPtr params, DevPtr gradients);

  /// Passes on StepResult::measured: the floats of parts and, of a step that measured it, those of
  /// the batch.
  void take(const StepResult& result);
  /// Adds the values to the line of the step that was taken last.
  void log(Json& line) const;

 private:
  using List = std::vector<std::unique_ptr<Measurement>>;

  List parts_, batch_;
  std::size_t buckets_;
  std::int64_t part_floats_;
  DeviceMemory batch_floats_;
};

/// Returns what prevents a measurement of the job, and what to do; empty if nothing does.
std::string problem_of_measurements(const Job& job);

}  // namespace dpt
