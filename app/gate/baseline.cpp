#include "app/gate/baseline.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/runs/run_facts.h"
#include "engine/run/run_folder.h"
#include "kernels/base/error.h"
#include "kernels/base/file_io.h"
#include "kernels/base/held_path.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void refuse_unfinished(const std::string& path, const std::string& status) {
  const bool can_continue = status != "failed" && status != "diverged";
  fail(ErrorKind::data,
       "--baseline {}: expected a completed run, found one that {}: {}name another run", path,
       status == "running"    ? "is still running"
       : status == "stopped"  ? "was stopped"
       : status == "failed"   ? "failed"
       : status == "diverged" ? "diverged"
                              : "was interrupted",
       status == "running" ? "wait until it ends, or "
       : can_continue      ? "let it finish (run the same dpt train command again), or "
                           : "");
}

/// Returns the path of the summary.json of a run folder. Throws if the run has none, for example
/// because it is in progress.
std::string summary_file_of(const std::string& folder) {
  const std::string file = folder + "/summary.json";
  std::error_code ignored;
  if (fs::exists(file, ignored)) return file;
  if (!is_run_folder(folder)) {
    fail(ErrorKind::data, "--baseline {}: expected a run folder, found no config.yaml in it",
         folder);
  }
  refuse_unfinished(folder, read_run_facts(folder).status);
}

}  // namespace

Baseline load_baseline(const std::string& path) {
  std::error_code ignored;
  const std::string file = fs::is_directory(path, ignored) ? summary_file_of(path) : path;
  if (!fs::exists(file, ignored)) {
    fail(ErrorKind::data,
         "--baseline {}: no such file: expected a run folder, its summary.json, or a file with the "
         "output of dpt eval --json",
         path);
  }
  const Json json = Json::parse(read_whole_file(file), nullptr, false);
  const auto has_text = [&](const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_string();
  };
  const std::string val_key = json.contains("best_val") ? "best_val" : "val";
  if (has_text("status")) {
    const std::string status = json["status"];
    // A run that --max-steps ended is a valid baseline.
    if (status != "ok" && status != "max_steps") refuse_unfinished(path, status);
    return {path, file, val_key, results_of_summary(json, folder_of(file) + "/metrics.jsonl")};
  }
  if (has_text("split") && json.contains("loss")) {
    return {path, file, val_key, {Json{{json["split"].get<std::string>(), json}}, {}}};
  }
  fail(ErrorKind::data,
       "--baseline {}: expected a run folder, its summary.json, or the output of dpt eval --json; "
       "found {}",
       path,
       json.is_discarded() ? "text that is not JSON"
       : !json.is_object() ? "JSON that is not an object"
                           : "an object without 'status' or 'split'");
}

}  // namespace dpt
