// Prometheus output of dpt train (log.prometheus): the initial state, and the exit code at the end.
#pragma once

#include <functional>
#include <optional>

#include "engine/job/job.h"
#include "engine/run/prometheus_file.h"
#include "engine/run/run_folder.h"

namespace dpt {

/// Throws ErrorKind::usage if the file of log.prometheus cannot be written.
void check_prometheus(const TrainSpec& spec);

/// Returns the state of a run that starts, or resumes, from `start`.
PrometheusState prometheus_state(const Job& job, const RunFolder& folder, const RunState& start);

/// Runs `body` and writes its exit code to the file, if there is one.
int reporting_end(std::optional<PrometheusFile>& file, const Job& job,
                  const std::function<int()>& body);

}  // namespace dpt
