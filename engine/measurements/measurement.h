// The contract of a measurement: values of a training step other than its loss and metrics. They
// are in the step's line of the log if the measurement's switch in `log` is on. The device computes
// floats, and the host computes the values from them. Each measurement has one source file in this
// folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/job/job.h"
#include "engine/job/step.h"
#include "engine/run/run_log.h"
#include "kernels/backend.h"

namespace dpt {

/// The gradient of one part of the batch. Valid before the gradient of another part is added to its
/// buffer.
struct PartGradient {
  std::int64_t part;  ///< number of a shard; in fast mode, of a rank
  DevPtr gradients;   ///< gradients of Plan::updated, at the offsets of the parameters
  DevPtr metrics;     ///< StepMetrics of the part
  DevPtr floats;      ///< Measurement::floats() floats; each part writes only its own
};

/// One measurement of one replica, used by the thread of its backend. Its calls to the device may
/// be captured in a graph (DeviceQueue::capture).
class Measurement {
 public:
  virtual ~Measurement() = default;

  /// Returns the number of floats per step. It is the same in every step and on every rank.
  virtual std::int64_t floats() const = 0;

  /// Queues the work that writes the floats of one part. No other part may write these floats.
  /// Called if MeasurementKind::of_parts is set, for each bucket of gradient_buckets() in order.
  /// Only the gradients of the bucket are valid. The floats are zero at the beginning of a step,
  /// and the sum over ranks adds them.
  virtual void measure_part(const PartGradient& /*part*/, std::size_t /*bucket*/) {}
  /// Queues the work that writes all floats. Called if MeasurementKind::of_parts is not set.
  /// `params` are the weights before the update. `gradients` are those of Plan::updated over the
  /// whole batch, before clipping. Both are at the offsets of the parameters.
  virtual void measure(DevPtr /*params*/, DevPtr /*gradients*/, DevPtr /*floats*/) {}

  /// Takes the floats of a step. They are valid only during the call.
  virtual void take(const StepResult& result, std::span<const float> floats) = 0;
  /// Adds the values to the log line of the last step passed to take().
  virtual void log(Json& line) const = 0;
};

struct MeasurementKind {
  const char* name;  ///< name of its switch, a field of `log`
  const char* doc;   ///< one line for the reference
  /// True if it measures the gradients of parts of the batch, in every step and on every rank. Its
  /// floats then come after the metrics in the gradient buffers, and every step sets
  /// StepResult::grad_norm. False if it measures the whole batch, only in logged steps and only on
  /// the replica whose results are logged.
  bool of_parts;
  /// Creates the measurement for the replica of `backend`. `job` must outlive it.
  std::unique_ptr<Measurement> (*make)(Backend& backend, const Job& job);
};

template <class T>
std::unique_ptr<Measurement> make_measurement(Backend& backend, const Job& job) {
  return std::make_unique<T>(backend, job);
}

}  // namespace dpt
