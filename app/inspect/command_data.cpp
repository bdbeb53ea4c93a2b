// dpt data check|stats: describes the samples of a config and their problems.
#include "app/inspect/command_data.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include <fmt/ranges.h>

#include "app/base/catalog.h"
#include "app/base/command_support.h"
#include "app/base/console.h"
#include "app/base/progress_line.h"
#include "app/base/training_statistics.h"
#include "datasets/dataset.h"
#include "engine/config/read_spec.h"
#include "engine/config/secrets.h"
#include "engine/data/data_check.h"
#include "engine/data/data_report.h"
#include "engine/data/data_sets.h"
#include "engine/data/file_checks.h"
#include "engine/data/split.h"
#include "engine/data/splits.h"
#include "engine/graph/make_plan.h"
#include "engine/graph/plan.h"
#include "engine/job/job.h"
#include "engine/processes/stop.h"
#include "kernels/base/json_text.h"
#include "kernels/base/text.h"
#include "kernels/devices.h"

namespace dpt {
namespace {

using Json = nlohmann::ordered_json;

/// Maximum number of lines of the class table; --json has them all.
constexpr std::size_t kMaxClassLines = 40;
/// Maximum number of printed findings of each kind, except unreadable samples.
constexpr std::size_t kMaxPrinted = 10;

Splits splits_of(const TrainSpec& spec, const DataSets& sets) {
  return make_splits(sets, spec.data.val_split, static_cast<std::uint64_t>(spec.seed));
}

/// Opens the data set of a config. If some of its files are refused, tries again without them and
/// sets `refused` to their problems. If the data set cannot be opened at all, returns none and sets
/// `refused` to the reason.
DataSets open_data(const TrainSpec& spec, std::string* refused = nullptr) {
  DataRequirements requirements = data_requirements(spec, make_plan(spec));
  try {
    return open_dataset(spec.data.dataset, requirements);
  } catch (const Error& error) {
    if (!refused || error.kind() != ErrorKind::data) throw;
    *refused = error.what();
  }
  if (!dataset_kind(spec.data.dataset).lists_only) return {};
  requirements.leaves_out_files = true;
  try {
    return open_dataset(spec.data.dataset, requirements);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    return {};
  }
}

int workers_of(const DataOptions& options) {
  return options.workers > 0 ? options.workers : cpu_info().logical_allowed;
}

bool is_stop_requested() {
  return requested_stop() != StopReason::none;
}

/// Reports that the command was stopped and has saved nothing; returns its exit code.
int stopped() {
  const StopReason reason = requested_stop();
  say(fmt::format("stopped by {} before all samples were read", name_of(reason)));
  return exit_code_of(reason);
}

std::string normalize_line(const ChannelStatistics& statistics) {
  return fmt::format("{{type: Normalize, {}}}", text_of(normalize_spec(statistics)));
}

Json json_of(const ChannelStatistics& statistics) {
  return {{"samples", statistics.samples}, {"mean", statistics.mean}, {"std", statistics.stddev}};
}

// ---- Errors and warnings -----------------------------------------------------------------------

std::set<FindingKind> allowed_kinds(const DataOptions& options) {
  std::set<FindingKind> allowed;
  for (const std::string& name : options.allowed) {
    std::vector<std::string> names;
    for (int k = 0; k < kFindingKinds; ++k) {
      const auto kind = static_cast<FindingKind>(k);
      // Do not allow not_opened: such a data set was not checked.
      if (!is_error(kind) || kind == FindingKind::not_opened) continue;
      names.emplace_back(name_of(kind));
      if (name == names.back()) allowed.insert(kind);
    }
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      fail(ErrorKind::usage, "--allow {}: expected one of {}", name, fmt::join(names, ", "));
    }
  }
  return allowed;
}

struct CheckVerdict {
  std::set<FindingKind> allowed;
  OnBadSample on_bad_sample;  ///< from the config
  bool is_error(FindingKind kind) const { return dpt::is_error(kind) && !allowed.contains(kind); }
  const char* word(FindingKind kind) const { return is_error(kind) ? "error" : "warning"; }
  std::int64_t count(const DataReport& report, bool errors) const {
    return std::count_if(report.findings.begin(), report.findings.end(),
                         [&](const Finding& f) { return is_error(f.kind) == errors; });
  }
};

// ---- Text --------------------------------------------------------------------------------------

std::string sizes_text(const ImageSizes& sizes) {
  const auto text = [](Size2 size) { return fmt::format("{}x{}", size.h, size.w); };
  if (sizes.distinct == 0) return "-";
  if (sizes.distinct == 1) return text(sizes.commonest);
  const std::string range = fmt::format("{} to {}", text(sizes.smallest), text(sizes.largest));
  if (sizes.of_commonest == 1) return fmt::format("{}, {} sizes", range, sizes.distinct);
  return fmt::format("{}, most often {} ({}), {} sizes", range, text(sizes.commonest),
                     sizes.of_commonest, sizes.distinct);
}

/// Returns the range of the labels of the readable samples; "-" without labels.
std::string labels_text(const std::vector<std::int64_t>& counts) {
  const auto has = [](std::int64_t count) { return count > 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), has);
  if (first == counts.end()) return "-";
  const auto last = std::find_if(counts.rbegin(), counts.rend(), has);
  return fmt::format("{} to {}", first - counts.begin(), counts.rend() - last - 1);
}

/// Returns true if the samples are rows of a table, not images.
bool has_rows(const DataReport& report) {
  return !report.splits[0].split.source->features().empty();
}

void print_splits(const DataReport& report) {
  fmt::print("{:<6} {:>10} {:>10}  {:<10}  {}\n", "split", "samples", "unreadable", "labels",
             has_rows(report) ? "features" : "size in the files (height x width)");
  for (std::size_t s = 0; s < report.splits.size(); ++s) {
    const SurveyedSplit& split = report.splits[s];
    fmt::print("{:<6} {:>10} {:>10}  {:<10}  {}\n", split.name, split.split.size(),
               split.unreadable.size(), labels_text(report.class_counts[s]),
               has_rows(report) ? std::to_string(split.split.source->features().size())
                                : sizes_text(image_sizes(split)));
  }
}

/// Prints the number of images that are turned upright. Images that stay turned are reported as
/// findings.
void print_turned(const DataReport& report) {
  std::int64_t turned = 0;
  std::map<int, std::int64_t> counts;
  for (const SurveyedSplit& split : report.splits) {
    for (const auto& [orientation, count] : stored_orientations(split).turned) {
      counts[orientation] += count;
      turned += count;
    }
  }
  if (turned == 0) return;
  std::vector<std::string> kinds;
  for (const auto& [orientation, count] : counts) {
    kinds.push_back(fmt::format("{}x {}", count, orientation));
  }
  fmt::print("\n{} stored rotated or mirrored (Exif orientation: {}), and {} turned upright\n",
             turned == 1 ? "1 image is" : fmt::format("{} images are", turned),
             fmt::join(kinds, ", "), turned == 1 ? "is" : "are");
}

void print_classes(const DataReport& report) {
  const std::vector<std::int64_t>& train = report.class_counts[0];
  if (train.empty()) return;
  if (train.size() > kMaxClassLines) {
    fmt::print("\n{} classes:\n", train.size());
    for (std::size_t s = 0; s < report.splits.size(); ++s) {
      const auto [least, most] =
          std::minmax_element(report.class_counts[s].begin(), report.class_counts[s].end());
      fmt::print("{:<6} {} to {} samples per class\n", report.splits[s].name, *least, *most);
    }
    return;
  }
  fmt::print("\n{:<24}", "class");
  for (const SurveyedSplit& split : report.splits) fmt::print(" {:>8}", split.name);
  fmt::print("\n");
  for (std::size_t c = 0; c < train.size(); ++c) {
    fmt::print("{:<24}", printable(report.splits[0].split.source->classes()[c]));
    for (const std::vector<std::int64_t>& counts : report.class_counts) {
      fmt::print(" {:>8}", counts[c]);
    }
    fmt::print("\n");
  }
}

/// Prints a message that may have several lines.
void print_lines(const std::string& message) {
  std::istringstream lines(message);
  for (std::string line; std::getline(lines, line);) fmt::print("  {}\n", printable(line));
}

/// Prints what training does with unreadable samples. `can_skip`: they have only class labels.
void print_consequence(OnBadSample on_bad_sample, bool can_skip) {
  switch (on_bad_sample) {
    case OnBadSample::stop:
      fmt::print("  (a run ends when it reads one of these{})\n",
                 can_skip ? "; with data.on_bad_sample=skip, it continues" : "");
      break;
    case OnBadSample::skip:
      fmt::print("  (a run leaves these out, because data.on_bad_sample is skip)\n");
      break;
    case OnBadSample::salvage:
      fmt::print(
          "  (a run uses what can be decoded of a damaged JPEG, and ends when it reads any other "
          "of these)\n");
      break;
  }
}

void print_findings(const DataReport& report, const CheckVerdict& verdict) {
  for (std::size_t first = 0; first < report.findings.size();) {
    const FindingKind kind = report.findings[first].kind;
    std::size_t last = first;
    while (last < report.findings.size() && report.findings[last].kind == kind) ++last;
    fmt::print("\n{}: {} ({})\n", verdict.word(kind), name_of(kind), last - first);
    const bool all = kind == FindingKind::unreadable || kind == FindingKind::not_opened;
    const std::size_t end = all ? last : std::min(last, first + kMaxPrinted);
    for (std::size_t i = first; i < end; ++i) {
      const std::string& message = report.findings[i].message;
      // Do not split other messages into lines: names in them may contain line breaks.
      if (kind == FindingKind::not_opened) {
        print_lines(message);
      } else {
        fmt::print("  {}\n", printable(message));
      }
    }
    if (end < last) fmt::print("  (and {} more: --json has all)\n", last - end);
    if (kind == FindingKind::unreadable) {
      const bool can_skip = report.splits[0].split.source->targets().floats() == 0;
      print_consequence(verdict.on_bad_sample, can_skip);
    }
    first = last;
  }
}

void print_report(const DataReport& report, const CheckVerdict& verdict) {
  print_splits(report);
  print_turned(report);
  print_classes(report);
  bool has_copies = false;
  for (const CopyCount& copy : report.copies) {
    if (copy.samples == 0) continue;
    fmt::print("{}{} of {} {} samples {} equal{} to a {} sample\n", has_copies ? "" : "\n",
               copy.samples, report.splits[copy.of].split.size(), report.splits[copy.of].name,
               copy.samples == 1 ? "is" : "are", has_rows(report) ? " in features" : "",
               report.splits[copy.in].name);
    has_copies = true;
  }
  if (!report.looks_for_near && !has_rows(report)) {
    fmt::print("\nnear duplicates were not searched for: the images are smaller than 8x8 pixels\n");
  } else if (report.looks_for_near && !report.near_is_complete) {
    fmt::print("\nthere may be more near duplicates: too many images look alike\n");
  }
  if (!report.splits[0].statistics.mean.empty()) {
    fmt::print("\nnormalisation of the training samples: {}\n",
               normalize_line(report.splits[0].statistics));
  }
  print_findings(report, verdict);
  fmt::print("\n{}, {}\n", counted(verdict.count(report, true), "error"),
             counted(verdict.count(report, false), "warning"));
}

// ---- JSON --------------------------------------------------------------------------------------

Json json_of(Size2 size) {
  return {{"height", size.h}, {"width", size.w}};
}

Json json_of(const std::map<int, std::int64_t>& counts) {
  Json out = Json::object();
  for (const auto& [key, count] : counts) out[std::to_string(key)] = count;
  return out;
}

Json json_of_split(const DataReport& report, std::size_t s) {
  const SurveyedSplit& split = report.splits[s];
  Json out = {{"samples", split.split.size()}, {"unreadable", split.unreadable.size()}};
  out["class_counts"] = nullptr;
  if (!report.class_counts[s].empty()) out["class_counts"] = report.class_counts[s];
  const ImageSizes sizes = image_sizes(split);
  out["sizes"] = nullptr;
  if (sizes.distinct > 0) {
    out["sizes"] = {{"smallest", json_of(sizes.smallest)},
                    {"largest", json_of(sizes.largest)},
                    {"commonest", json_of(sizes.commonest)},
                    {"of_commonest", sizes.of_commonest},
                    {"distinct", sizes.distinct}};
  }
  const StoredOrientations stored = stored_orientations(split);
  out["orientations"] = json_of(stored.counts);
  out["turned_upright"] = json_of(stored.turned);
  out["statistics"] = json_of(split.statistics);
  return out;
}

Json json_of_finding(const DataReport& report, const Finding& finding,
                     const CheckVerdict& verdict) {
  Json out = {{"kind", name_of(finding.kind)},
              {"severity", verdict.word(finding.kind)},
              {"message", finding.message}};
  if (finding.correlation > 0) out["correlation"] = finding.correlation;
  out["samples"] = Json::array();
  for (const SampleRef& sample : finding.samples) {
    const SurveyedSplit& split = report.splits[sample.split];
    const auto at = static_cast<std::size_t>(sample.position);
    Json one = {{"split", split.name},
                {"index", split.split.indices[at]},
                {"name", name_of_sample(report, sample)},
                {"label", nullptr}};
    if (has_labels(split.split.source->targets().kind) && split.records[at].is_read) {
      one["label"] = split.records[at].label;
    }
    out["samples"].push_back(std::move(one));
  }
  return out;
}

Json json_of(const DataReport& report, const CheckVerdict& verdict) {
  Json out;
  out["errors"] = verdict.count(report, true);
  out["warnings"] = verdict.count(report, false);
  out["splits"] = Json::object();
  out["copies"] = Json::array();
  if (!report.splits.empty()) {
    const DataSource& source = *report.splits[0].split.source;
    const SampleShape shape = source.shape();
    out["shape"] = {shape.c, shape.h, shape.w};
    out["type"] = name_of(source.type());
    out["classes"] = source.classes();
    for (std::size_t s = 0; s < report.splits.size(); ++s) {
      out["splits"][report.splits[s].name] = json_of_split(report, s);
    }
    for (const CopyCount& copy : report.copies) {
      out["copies"].push_back({{"of", report.splits[copy.of].name},
                               {"in", report.splits[copy.in].name},
                               {"samples", copy.samples}});
    }
    out["near_duplicates"] = {{"looked_for", report.looks_for_near},
                              {"complete", report.near_is_complete},
                              {"pairs", report.near_pairs}};
  }
  out["findings"] = Json::array();
  for (const Finding& finding : report.findings) {
    out["findings"].push_back(json_of_finding(report, finding, verdict));
  }
  return out;
}

/// Returns the findings of the check. If the data set cannot be opened, that is the only finding.
DataReport check_config(const TrainSpec& spec, int workers) {
  std::string refused;
  const DataSets sets = open_data(spec, &refused);
  const Finding not_opened{FindingKind::not_opened, refused, {}};
  if (!sets.train) {
    DataReport report;
    report.findings.push_back(not_opened);
    return report;
  }
  say_notes(sets);
  const Splits splits = splits_of(spec, sets);
  install_signal_handlers();
  say(fmt::format("reading {} with {}",
                  counted(splits.train.size() + splits.val.size() + splits.test.size(), "sample"),
                  counted(workers, "thread")));
  ProgressLine progress;
  DataCheckOptions check;
  check.workers = workers;
  check.wants_stop = is_stop_requested;
  check.on_progress = [&](const char* phase, std::int64_t done, std::int64_t total) {
    progress.update(phase, done, total, phase == std::string("read") ? "samples" : "pairs");
  };
  DataReport report = check_data(splits, check);
  if (!refused.empty()) report.findings.insert(report.findings.begin(), not_opened);
  return report;
}

}  // namespace

int run_data_check(const DataOptions& options) {
  const std::set<FindingKind> allowed = allowed_kinds(options);
  const TrainSpec spec = load_spec(catalog(), options.config, options.overrides);
  const CheckVerdict verdict{allowed, spec.data.on_bad_sample};
  DataReport report = check_config(spec, workers_of(options));
  for (Finding& finding : report.findings) finding.message = hide_secrets(finding.message);
  if (report.interrupted) return stopped();
  if (options.json) {
    fmt::print("{}\n", json_text(json_of(report, verdict)));
  } else if (report.splits.empty()) {
    fmt::print("error: {}\n", name_of(FindingKind::not_opened));
    print_lines(report.findings[0].message);
    fmt::print("\n1 error\n");
  } else {
    print_report(report, verdict);
  }
  return verdict.count(report, true) > 0 ? static_cast<int>(ErrorKind::data) : 0;
}

int run_data_stats(const DataOptions& options) {
  const TrainSpec spec = load_spec(catalog(), options.config, options.overrides);
  install_signal_handlers();
  const auto statistics = training_statistics(spec, open_data(spec), workers_of(options));
  if (!statistics) return stopped();
  if (options.json) {
    fmt::print("{}\n", json_text(json_of(*statistics)));
  } else {
    fmt::print("{}\n", normalize_line(*statistics));
  }
  return 0;
}

}  // namespace dpt
