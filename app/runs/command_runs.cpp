// dpt runs [FOLDER]: lists the runs in a folder.
#include "app/runs/command_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "app/base/console.h"
#include "app/base/csv_field.h"
#include "app/runs/run_comparison.h"
#include "app/runs/run_facts.h"
#include "app/runs/run_sorting.h"
#include "engine/run/progress.h"
#include "engine/run/run_folder.h"
#include "kernels/base/error.h"
#include "kernels/base/json_text.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

using RunsJson = nlohmann::ordered_json;

/// Returns true if the folder has the files that every run has from its start. (Other folders may
/// have configs or checkpoints too.)
bool looks_like_run(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path + "/config.yaml", ignored) && fs::exists(path + "/metrics.jsonl", ignored);
}

/// Searches a folder for run folders, and also its subfolders that are not runs. Follows links
/// last, and only to folders that were not found without them.
class RunSearch {
 public:
  /// Returns the folders, sorted by name. Throws ErrorKind::data if `folder` cannot be listed. A
  /// subfolder that cannot be listed is left out with a warning.
  std::vector<std::string> in(const std::string& folder) {
    if (const auto failure = list(folder, 0)) {
      fail(ErrorKind::data, "{}: cannot list the folder: {}", folder, failure.message());
    }
    for (std::size_t i = 0; i < links_.size(); ++i) {
      const auto [path, depth] = links_[i];  // a copy, because look_at() may add links
      look_at(path, depth);
    }
    std::sort(runs_.begin(), runs_.end());
    return std::move(runs_);
  }

 private:
  std::error_code list(const std::string& folder, int depth) {
    std::error_code failure;
    seen_.insert(real(folder));
    for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
         entry.increment(failure)) {
      std::error_code ignored;
      if (!entry->is_directory(ignored)) continue;
      if (entry->is_symlink(ignored)) {
        links_.emplace_back(entry->path().string(), depth);
      } else {
        look_at(entry->path().string(), depth);
      }
    }
    return failure;
  }

  void look_at(const std::string& path, int depth) {
    constexpr int kDeepest = 3;
    if (seen_.count(real(path)) > 0) return;
    if (looks_like_run(path)) {
      seen_.insert(real(path));
      runs_.push_back(path);
    } else if (depth + 1 < kDeepest) {
      if (const auto failure = list(path, depth + 1)) {
        say(fmt::format("warning: {}: left out: cannot list the folder: {}", path,
                        failure.message()));
      }
    }
  }

  static std::string real(const std::string& path) {
    std::error_code ignored;
    return fs::weakly_canonical(path, ignored).string();
  }

  std::vector<std::string> runs_;
  std::vector<std::pair<std::string, int>> links_;
  std::set<std::string> seen_;
};

std::string best_text(const RunFacts& facts) {
  if (facts.best_name.empty()) return "-";
  return fmt::format("{} {}", facts.best_name,
                     facts.best ? fmt::format("{:.6g}", *facts.best) : "non-finite");
}

/// Undoes a `train --overwrite` that has not saved its first regular checkpoint yet.
int restore_run(const std::string& path, bool json) {
  if (!is_run_folder(path)) {
    fail(ErrorKind::data, "--restore {}: expected a run folder, found none", path);
  }
  RunFolder folder(path);
  if (!folder.restored()) {
    if (!folder.has_replaced()) {
      fail(ErrorKind::usage,
           "--restore {}: expected a replaced run in {}, found none. The run that --overwrite "
           "replaces is removed when the new run saves its first regular checkpoint",
           path, folder.file("replaced"));
    }
    folder.put_back();
  }
  const std::string& kept = folder.kept_of_new();
  if (json) {
    RunsJson out = {{"restored", folder.path()}};
    if (!kept.empty()) out["abandoned"] = kept;
    fmt::print("{}\n", json_text(out));
    return 0;
  }
  fmt::print("restored the previous run in {}{}\n", folder.path(),
             kept.empty() ? std::string() : "; what the new run saved is in " + kept);
  return 0;
}

/// Reads a run. A config that this release cannot read leaves its cells empty.
ComparedRun listed_run(const std::string& folder) {
  ComparedRun run{read_run_facts(folder), {}, {}};
  run.numbers = numbers_of(run.facts);
  try {
    run.config = config_of_run(folder);
  } catch (const Error&) {
    // `dpt eval` and `dpt train` report the error.
  }
  return run;
}

std::string learning_rate(const ComparedRun& run) {
  const auto found = run.config.by_path.find("optimizer.lr");
  return found == run.config.by_path.end() ? "-" : found->second;
}

/// Returns the test accuracy, or the test loss of runs without one.
std::string test_text(const ComparedRun& run) {
  for (const char* name : {"test/accuracy", "test/loss"}) {
    for (const auto& [each, value] : run.facts.results) {
      if (each == name) return fmt::format("{} {:.6g}", name + 5, value);
    }
  }
  return "-";
}

std::string text_of_list(const std::vector<ComparedRun>& runs) {
  std::vector<std::vector<std::string>> rows{
      {"run", "status", "changed", "best", "test", "lr", "time", "steps"}};
  for (const ComparedRun& run : runs) {
    const RunFacts& facts = run.facts;
    rows.push_back({facts.folder, facts.status, local_time_text(facts.changed), best_text(facts),
                    test_text(run), learning_rate(run),
                    facts.seconds ? format_duration(*facts.seconds) : "-",
                    std::to_string(facts.steps)});
  }
  return fitted_table_text(std::move(rows), 5, {"lr", "steps", "time", "changed", "test"});
}

std::string csv_of_list(const std::vector<ComparedRun>& runs) {
  RunNumbers numbers;
  for (const ComparedRun& run : runs) numbers.push_back(run.numbers);
  const std::vector<std::string> measured = measures_in(numbers);
  std::string text = "run,status,changed,optimizer.lr";
  for (const std::string& name : measured) text += "," + csv_field(name);
  text += "\n";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const ComparedRun& run = runs[i];
    const std::string lr = learning_rate(run);
    text += fmt::format("{},{},{},{}", csv_field(run.facts.folder), run.facts.status,
                        utc_time_text(run.facts.changed), lr == "-" ? "" : lr);
    for (const std::string& name : measured) {
      const auto value = number_at(numbers, i, name);
      text += value ? fmt::format(",{}", *value) : std::string(",");
    }
    text += "\n";
  }
  return text;
}

}  // namespace

int run_runs(const RunsOptions& options) {
  if (!options.restore.empty()) return restore_run(options.restore, options.json);
  std::error_code error;
  if (!fs::is_directory(options.folder, error)) {
    fail(ErrorKind::data, "{}: no such folder: name the folder that holds the runs",
         options.folder);
  }
  // FOLDER may also be a run itself.
  const std::vector<std::string> folders =
      is_run_folder(options.folder) ? std::vector{options.folder} : RunSearch().in(options.folder);
  std::vector<ComparedRun> runs;
  for (const std::string& folder : folders) runs.push_back(listed_run(folder));
  if (!runs.empty()) sort_runs(runs, options.sort);
  if (options.json) {
    RunsJson out = {{"runs", RunsJson::array()}};
    for (const ComparedRun& run : runs) out["runs"].push_back(json_of(run.facts));
    fmt::print("{}\n", json_text(out));
    return 0;
  }
  fmt::print("{}", options.csv ? csv_of_list(runs) : text_of_list(runs));
  return 0;
}

}  // namespace dpt
