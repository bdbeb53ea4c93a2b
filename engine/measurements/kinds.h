// One function per measurement, and the list of them.
#pragma once

#include <vector>

#include "engine/config/fields.h"
#include "engine/measurements/measurement.h"

namespace dpt {

MeasurementKind layer_norms_measurement();
MeasurementKind noise_scale_measurement();

/// Returns all measurements, in their order in docs/reference/config.md and in a line of the log.
inline std::vector<MeasurementKind> all_measurements() {
  return {layer_norms_measurement(), noise_scale_measurement()};
}

/// Returns the name and documentation of each measurement, for the Catalog.
inline TextPairs measurement_switches() {
  TextPairs switches;
  for (const MeasurementKind& kind : all_measurements()) {
    switches.emplace_back(kind.name, kind.doc);
  }
  return switches;
}

}  // namespace dpt
