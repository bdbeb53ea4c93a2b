#include "app/train/train_prometheus.h"

#include <filesystem>
#include <new>

#include "engine/config/secrets.h"
#include "engine/processes/process_group.h"
#include "engine/processes/stop.h"
#include "kernels/base/error.h"
#include "kernels/base/stop_request.h"

namespace dpt {

void check_prometheus(const TrainSpec& spec) {
  const std::string& file = spec.log.prometheus;
  if (file.empty()) return;
  const std::string problem = why_no_prometheus_file(file);
  if (problem.empty()) return;
  const auto written = spec.origins.find("log.prometheus");
  const Where where = written == spec.origins.end() ? Where{spec.file, 1, 1} : written->second;
  fail(ErrorKind::usage, "{}: log.prometheus: {}", where.text(), problem);
}

PrometheusState prometheus_state(const Job& job, const RunFolder& folder, const RunState& start) {
  PrometheusState state;
  state.run = job.spec.name;
  state.folder = hide_secrets(std::filesystem::absolute(folder.path()).string());
  state.epoch = start.epoch;
  state.step = start.step;
  state.epochs = job.spec.train.epochs;
  state.steps = job.update.total_steps;
  state.take_results(start);
  return state;
}

namespace {

/// Returns the exit code of `dpt train` after an error in this process. If another process caused
/// the error, this is that process's exit code.
int exit_code_after(const Error& error, const Job& job) {
  if (error.kind() == ErrorKind::peer && job.placement.processes) {
    const auto cause = job.placement.processes->wait_for_cause();
    if (cause && cause->exit_code != 0) return cause->exit_code;
  }
  return static_cast<int>(error.kind());
}

}  // namespace

int reporting_end(std::optional<PrometheusFile>& file, const Job& job,
                  const std::function<int()>& body) {
  const auto end = [&](int exit_code) {
    if (file) file->end(exit_code);
  };
  try {
    const int exit_code = body();
    end(exit_code);
    return exit_code;
  } catch (const StopRequested&) {
    end(exit_code_of(requested_stop()));
    throw;
  } catch (const Error& error) {
    if (file) end(exit_code_after(error, job));
    throw;
  } catch (const std::bad_alloc&) {
    end(static_cast<int>(ErrorKind::device));
    throw;
  } catch (const std::exception&) {
    end(static_cast<int>(ErrorKind::unexpected));
    throw;
  }
}

}  // namespace dpt
