// dpt report RUN [RUN ...]: writes a page about runs, in a single file.
#include "app/report/command_report.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>

#include "app/base/command_support.h"
#include "app/base/console.h"
#include "app/report/assets.h"
#include "app/report/page.h"
#include "kernels/base/error.h"
#include "kernels/base/file_io.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

/// Returns true if the word is an override, not a folder or a path with a '=' in it.
bool is_override(const std::string& word) {
  std::error_code error;
  const std::size_t equals = word.find('=');
  return equals != std::string::npos && equals > 0 && word.find('/') > equals &&
         !fs::exists(word, error);
}

/// Throws for an existing file that dpt report did not write.
void check_replaceable(const std::string& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::directory) {
    fail(ErrorKind::usage, "-o {}: expected a file, found a folder: give a path such as {}", path,
         (fs::path(path) / "report.html").string());
  }
  if (type != fs::file_type::regular) return;
  std::string beginning(4096, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  beginning.resize(static_cast<std::size_t>(in.gcount()));
  // Accept an empty file: the shell may have created it (`> FILE`).
  if (beginning.empty() || beginning.find(kReportMarker) != std::string::npos) return;
  fail(ErrorKind::usage,
       "{}: not replaced: the file was not written by dpt report. Give another name with -o, or "
       "remove the file",
       path);
}

/// Throws ErrorKind::data if the existing report has evaluations that the new page lacks because a
/// run could not be evaluated.
void check_not_poorer(const std::string& path, const std::string& page,
                      const std::vector<ReportedRun>& runs) {
  std::error_code error;
  const bool is_lacking = std::any_of(runs.begin(), runs.end(), [](const ReportedRun& run) {
    return !run.evaluation_problem.empty();
  });
  if (!is_lacking || !fs::is_regular_file(path, error)) return;
  if (evaluations_in(read_whole_file(path)) <= evaluations_in(page)) return;
  fail(
      ErrorKind::data,
      "{}: not replaced: the report there has an evaluation that a new one would lack. Restore "
      "the data or say where it is (e.g. data.root=DIR), give another name with -o, or replace the "
      "report with one that has no evaluation: --mistakes 0",
      path);
}

/// Returns the last parts of the folders' paths if they are distinct, otherwise the paths.
std::vector<std::string> labels_of(const std::vector<std::string>& folders) {
  std::vector<std::string> labels;
  for (const std::string& folder : folders) {
    std::error_code error;
    const std::string name = fs::absolute(folder, error).lexically_normal().filename().string();
    labels.push_back(name.empty() ? folder : name);
  }
  const std::set<std::string> different(labels.begin(), labels.end());
  return different.size() == labels.size() ? labels : folders;
}

ReportedRun read_run(const std::string& folder, const std::string& label,
                     const ReportedEvaluationOptions& options) {
  ReportedRun run;
  run.label = label;
  run.history = read_history(folder);
  run.config_text = read_whole_file(folder + "/config.yaml");
  try {
    run.config = config_of_run(folder);
  } catch (const Error& error) {
    run.config_problem = error.what();
  }
  if (options.samples == 0) return run;
  try {
    run.evaluation = evaluate_for_report(folder, options);
  } catch (const Error& error) {
    // Fail if options on the command line caused the problem, instead of noting it in the page.
    const bool is_asked_for = !options.overrides.empty() || !options.devices.empty();
    if (error.kind() == ErrorKind::usage && is_asked_for) throw;
    run.evaluation_problem = error.what();
    say(
        fmt::format("warning: {}: the report has no confusion matrix and no mistakes of this run, "
                    "because its evaluation failed: {} (--mistakes 0 skips the evaluation)",
                    folder, error.what()));
  }
  return run;
}

}  // namespace

int run_report(const ReportOptions& options) {
  if (report_assets().charts.empty()) {
    fail(ErrorKind::usage,
         "dpt report needs Chart.js, but this dpt was built without it: install it (on Debian, "
         "libjs-chart.js) and build dpt again with -DDPT_CHARTS=ON");
  }
  ReportedEvaluationOptions evaluation{options.mistakes, options.devices, {}};
  std::vector<std::string> folders;
  for (const std::string& word : options.words) {
    if (is_override(word)) {
      evaluation.overrides.push_back(word);
      continue;
    }
    const std::string folder = checked_run_folder(word);
    if (std::find(folders.begin(), folders.end(), folder) != folders.end()) {
      fail(ErrorKind::usage, "{}: the run is given twice", folder);
    }
    folders.push_back(folder);
  }
  if (folders.empty()) fail(ErrorKind::usage, "expected the folder of a run, found none");
  const std::string out = !options.out.empty()  ? options.out
                          : folders.size() == 1 ? folders[0] + "/report.html"
                                                : "report.html";
  check_replaceable(out);
  const std::vector<std::string> labels = labels_of(folders);
  std::vector<ReportedRun> runs;
  for (std::size_t i = 0; i < folders.size(); ++i) {
    runs.push_back(read_run(folders[i], labels[i], evaluation));
  }
  const std::string page = report_page(runs);
  check_not_poorer(out, page, runs);
  write_results(out, std::as_bytes(std::span(page)));
  // Print nothing more if the page itself went to stdout.
  std::error_code error;
  if (fs::is_regular_file(out, error)) fmt::print("{}\n", out);
  return 0;
}

}  // namespace dpt
