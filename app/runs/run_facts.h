// Facts about a run, read from its folder without changing or locking it, for commands that list
// and compare runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dpt {

struct RunFacts {
  std::string folder;
  /// "running"; the status of the last run_end ("ok", "max_steps", "stopped", "failed", or
  /// "diverged" for a failure by divergence); or "interrupted" if the process was killed.
  std::string status;
  std::int64_t steps = 0;  ///< completed steps, according to the log
  /// Monitor of the best value, such as "val/accuracy"; empty if there is none. It is read from the
  /// end of the newest process, or from best.safetensors.
  std::string best_name;
  std::optional<double> best;  ///< unset if it is non-finite
  std::int64_t best_step = 0;  ///< step of the best
  std::int64_t changed = 0;    ///< time of the last log line, in seconds since 1970
  /// Time of all processes of the run; unset if the log, from an earlier release, lacks it.
  std::optional<double> seconds;
  /// Results by the names of app/runs/run_results.h: "val/loss" (of the best epoch, if a best is
  /// kept), "last/val/loss", "test/accuracy", ...
  std::vector<std::pair<std::string, double>> results;
};

/// Throws ErrorKind::data if the folder cannot be read. REQUIRES: is_run_folder(folder).
RunFacts read_run_facts(const std::string& folder);

/// Returns "2026-11-23 15:04", in local time.
std::string local_time_text(std::int64_t seconds);
/// Returns "2026-11-23T14:04:05Z".
std::string utc_time_text(std::int64_t seconds);

/// Formats rows of cells as text, with two spaces between columns. Aligns columns from
/// `first_right` on to the right.
std::string table_text(const std::vector<std::vector<std::string>>& rows, std::size_t first_right);
/// Returns table_text. If stdout is a terminal too narrow for the table, leaves out columns until
/// it fits, in the order in which `least` lists their headings.
std::string fitted_table_text(std::vector<std::vector<std::string>> rows, std::size_t first_right,
                              const std::vector<std::string>& least);

}  // namespace dpt
