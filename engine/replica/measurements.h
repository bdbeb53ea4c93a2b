// The measurements of a replica (engine/measurements/measurement.h), called by its steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/measurements/measurement.h"
#include "engine/replica/replica_memory.h"

namespace dpt {

/// Used by the replica's thread only.
class Measurements {
 public:
  /// If `logs`, this replica's results are logged. Other replicas measure only parts of the batch.
  Measurements(Backend& backend, const Job& job, ReplicaMemory& memory, bool logs);

  /// Returns true if steps measure parts of the batch.
  bool measures_parts() const { return part_floats_ > 0; }
  /// Returns true if logged steps measure the whole batch.
  bool measures_batch() const { return batch_floats_.bytes() > 0; }

  /// Returns the number of floats for measurements in each gradient buffer, after the metrics.
  std::int64_t part_floats() const { return part_floats_; }
  /// Returns the floats of the last step that measured the whole batch.
  const DeviceMemory& batch_floats() const { return batch_floats_; }

  /// Measures one bucket of a part. `part.floats` points to the part_floats() floats of the
  /// gradient buffer.
  void measure_bucket(PartGradient part, std::size_t bucket);
  /// Measures all buckets.
  void measure_part(const PartGradient& part);
  /// Calls Measurement::measure. REQUIRES: measures_batch().
  void measure_batch(DevPtr params, DevPtr gradients);

  /// Passes StepResult::measured to the measurements: the floats of the parts and, if the step
  /// measured the whole batch, those of the batch.
  void take(const StepResult& result);
  /// Adds the measured values to the log line of the last step passed to take().
  void log(Json& line) const;

 private:
  using List = std::vector<std::unique_ptr<Measurement>>;

  List parts_, batch_;
  std::size_t buckets_;
  std::int64_t part_floats_;
  DeviceMemory batch_floats_;
};

/// Returns an error with advice if something prevents a measurement of the job; otherwise an empty
/// string.
std::string problem_of_measurements(const Job& job);

}  // namespace dpt
