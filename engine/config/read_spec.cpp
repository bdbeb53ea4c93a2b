// Reading a config: load, bind, then the checks that need more than one value.
#include "engine/config/read_spec.h"

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <variant>

#include <fmt/ranges.h>

#include "engine/config/binder.h"
#include "engine/config/blocks.h"
#include "engine/config/merge.h"
#include "engine/config/normalization.h"
#include "engine/config/replica_checks.h"
#include "engine/config/scalars.h"
#include "engine/config/sources.h"
#include "engine/config/spec_tables.h"
#include "engine/config/suggest.h"
#include "engine/config/values.h"
#include "engine/config/yaml_tree.h"
#include "kernels/base/device_name.h"

namespace dpt {
namespace {

class Checker {
 public:
  /// `is_new`: true for a run to be started, false for an existing one.
  Checker(const Catalog& catalog, TrainSpec& spec, bool is_new, std::vector<ConfigIssue>& issues)
      : catalog_(catalog), spec_(spec), is_new_(is_new), issues_(issues) {}

  void check() {
    expand_blocks(spec_.model, catalog_.layers, spec_.origins,
                  [&](const std::string& path, std::string text) { issue(path, std::move(text)); });
    check_devices();
    check_replicas();
    check_name();
    check_prometheus();
    check_validation();
    check_normalize();
    if (is_new_) check_keep_best();
    // A command that reads a stored run may measure metrics other than the monitored ones.
    if (is_new_) check_monitors();
  }

 private:
  /// Records whether the data set may have a validation set. If it has none, refuses settings that
  /// need one.
  void check_validation() {
    DataSpec& data = spec_.data;
    std::optional<bool> declared = false;
    if (catalog_.declares_validation && data.dataset.table) {
      declared = catalog_.declares_validation(data.dataset);
    }
    data.may_have_val = declared.value_or(true);
    if (declared.value_or(false) && data.val_split.holds_out()) {
      issue("data.val_split",
            "expected data.val or data.val_split, found both: leave one of them out");
    }
    if (spec_.train.early_stopping && !data.may_validate()) {
      issue(
          "train.early_stopping",
          fmt::format(
              "early_stopping monitors {}, but there are no validation samples: set data.val_split",
              spec_.train.early_stopping->monitor));
    }
  }

  /// Refuses a Normalize in addition to data.normalize, and sets the transforms to run.
  void check_normalize() {
    const std::string also = written_normalize(spec_.data.transforms);
    if (spec_.data.normalize.mode != NormalizeMode::none && !also.empty()) {
      issue(also,
            "expected data.normalize or Normalize in data.transforms, found both: remove Normalize "
            "from transforms.train and transforms.eval, or write normalize: none");
    }
    apply_normalization(catalog_.transforms, spec_.data);
  }

  /// Checks that an explicitly chosen monitor is measured. Skips resolved configs: they set every
  /// field, and thus a monitor even for a run without validation.
  void check_keep_best() {
    if (spec_.data.may_validate() || !is_written("checkpoint.keep_best.monitor")) return;
    const bool is_resolved = is_written("checkpoint.keep_best.mode") &&
                             is_written("checkpoint.every") && is_written("checkpoint.keep_last") &&
                             is_written("checkpoint.on_failure");
    if (is_resolved) return;
    issue("checkpoint.keep_best.monitor",
          fmt::format(
              "keep_best monitors {}, but there are no validation samples: set data.val_split, or "
              "keep the last checkpoint (checkpoint.keep_best={{}})",
              spec_.checkpoint.keep_best.monitor));
  }

  /// Checks that every monitored quantity is measured.
  void check_monitors() {
    // A metric that could not be read has been reported, and has no name.
    const auto& metrics = spec_.metrics;
    if (std::any_of(metrics.begin(), metrics.end(), [](const Variant& m) { return !m.table; })) {
      return;
    }
    const auto& early = spec_.train.early_stopping;
    if (early) check_monitor("train.early_stopping.monitor", early->monitor);
    check_monitor("checkpoint.keep_best.monitor", spec_.checkpoint.keep_best.monitor);
    const ObjectTable* schedule = spec_.lr_schedule.table;
    if (!schedule) return;
    for (const Field& field : schedule->fields) {
      if (field.name != "monitor") continue;
      check_monitor("lr_schedule.monitor",
                    std::get<std::string>(field.get(spec_.lr_schedule.options.get())));
    }
  }

  void check_monitor(const std::string& path, const std::string& monitor) {
    std::vector<std::string> known;
    for (const std::string& name : catalog_.measured_names(spec_.metrics)) {
      known.push_back("val/" + name);
    }
    std::sort(known.begin(), known.end());
    if (std::find(known.begin(), known.end(), monitor) != known.end()) return;
    std::string text =
        fmt::format("expected one of {}, found {}", fmt::join(known, ", "), in_quotes(monitor));
    std::string near = closest(monitor, known);
    if (near.empty()) near = name_ending_in(monitor, known);
    if (!near.empty()) {
      text += fmt::format("; did you mean '{}'?", near);
    } else if (monitor.starts_with("val/") && monitor.size() > 4) {
      text += fmt::format("; {} needs a metric of that name in metrics", monitor);
    }
    issue(path, std::move(text));
  }

  /// Adds an issue at the value of that path, or at the nearest enclosing mapping that was written.
  void issue(std::string path, std::string text) {
    const std::string field = path;
    while (!spec_.origins.contains(path)) {
      const std::size_t dot = path.rfind('.');
      if (dot == std::string::npos) break;
      path.resize(dot);
    }
    const auto found = spec_.origins.find(path);
    issues_.push_back({found == spec_.origins.end() ? Where{spec_.file, 1, 1} : found->second,
                       std::move(text), false, field});
  }

  bool is_written(const std::string& path) const { return spec_.origins.contains(path); }

  /// Checks the name, which is also the name of the run folder.
  void check_name() {
    if (!is_written("name")) {
      spec_.name = std::filesystem::path(spec_.file).stem().string();
      return;
    }
    const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20; };
    if (spec_.name.empty() || spec_.name[0] == '.' || spec_.name.find('/') != std::string::npos ||
        std::any_of(spec_.name.begin(), spec_.name.end(), is_control)) {
      issue("name", fmt::format("expected a name for a folder (no '/', not starting with '.'), "
                                "found {}",
                                in_quotes(spec_.name)));
    }
  }

  /// Checks the file's extension: node_exporter reads only .prom files.
  void check_prometheus() {
    const std::string& file = spec_.log.prometheus;
    if (file.empty() || file.ends_with(".prom")) return;
    issue("log.prometheus",
          fmt::format("log.prometheus: expected a file that ends in .prom, found {}",
                      in_quotes(file)));
  }

  void check_devices() {
    for (std::size_t i = 0; i < spec_.devices.size(); ++i) {
      const std::string& device = spec_.devices[i];
      const std::string path = fmt::format("devices.{}", i);
      const std::size_t colon = device.find(':');
      const std::string kind = device.substr(0, colon);
      const std::string rest = colon == std::string::npos ? "" : device.substr(colon + 1);
      const bool is_word = colon == std::string::npos;
      if (device == "auto" || device == "cuda") {
        if (spec_.devices.size() > 1) {
          issue(path, fmt::format("expected '{}' on its own, found it in a list", device));
        }
        continue;
      }
      if (read_device_name(device)) continue;
      std::string text = fmt::format(
          "expected a device: auto, cpu, cpu:N (N threads), cuda or cuda:N (the N-th GPU from 0), "
          "found {}",
          in_quotes(device));
      if (device.find(',') != std::string::npos) {
        text += fmt::format("; write a list: [{}]", device);
      } else if (kind == "gpu" || kind == "GPU" || kind == "CUDA") {
        text += is_word ? "; write cuda" : fmt::format("; write cuda:{}", rest);
      } else if (read_device_name("cuda:" + device)) {
        text += "; " + hint_of_device(device);
      }
      issue(path, std::move(text));
    }
  }

  /// Checks settings against the number of replicas, unless the devices are `auto` or `cuda`: their
  /// number is known only at the start of a run.
  void check_replicas() {
    for (const std::string& device : spec_.devices) {
      if (device == "auto" || device == "cuda") return;
    }
    std::string problem = problem_of_shards(spec_, spec_.devices.size());
    if (!problem.empty()) issue("train.shards", std::move(problem));
    problem = problem_of_device_weights(spec_, spec_.devices);
    if (!problem.empty()) issue("device_weights", std::move(problem));
  }

  const Catalog& catalog_;
  TrainSpec& spec_;
  bool is_new_;
  std::vector<ConfigIssue>& issues_;
};

/// Sorts issues: the main file first, then the files that it extends, then the command line; each
/// from top to bottom.
void sort_issues(std::vector<ConfigIssue>& issues, const std::vector<std::string>& files) {
  const auto rank = [&](const ConfigIssue& issue) {
    const auto file = issue.where.line == 0
                          ? files.end()
                          : std::find(files.begin(), files.end(), issue.where.file);
    return std::tuple(file - files.begin(), issue.where.line, issue.where.column);
  };
  std::stable_sort(issues.begin(), issues.end(),
                   [&](const ConfigIssue& a, const ConfigIssue& b) { return rank(a) < rank(b); });
  // A node is read again for each alias, so its issues occur several times.
  const auto same = [](const ConfigIssue& a, const ConfigIssue& b) {
    return a.text == b.text && a.where.line == b.where.line && a.where.column == b.where.column &&
           a.where.file == b.where.file;
  };
  issues.erase(std::unique(issues.begin(), issues.end(), same), issues.end());
  if (issues.size() > kMaxIssues) {
    const std::size_t more = issues.size() - kMaxIssues;
    issues.resize(kMaxIssues);
    issues.back().text += fmt::format(" (and {} more)", more);
  }
}

/// Returns true and adds an issue if the config needs a newer dpt: reading it would only cause
/// misleading issues.
bool is_newer_version(const YamlNode& tree, std::vector<ConfigIssue>& issues) {
  const YamlNode* version = tree.find("version");
  if (!version) return false;
  const Scalar<std::int64_t> number = read_integer(*version);
  if (!number.value || *number.value <= 1) return false;
  issues.push_back({version->where,
                    fmt::format("expected a config of version 1, found version {}: it was written "
                                "for a newer dpt",
                                *number.value)});
  return true;
}

TrainSpec spec_or_throw(ReadResult result) {
  const std::vector<ConfigIssue>& issues = result.issues;
  if (issues.empty()) return std::move(result.spec);
  const bool is_of_data = std::all_of(issues.begin(), issues.end(),
                                      [](const ConfigIssue& issue) { return issue.is_of_data; });
  throw Error(is_of_data ? ErrorKind::data : ErrorKind::usage, text_of(issues));
}

/// Reads the tree of a config into a spec, unless the tree is broken. `files` are the files of the
/// tree, in the order in which their issues are listed.
void read_tree(const Catalog& catalog, const SpecTables& tables, const YamlNode& tree,
               const std::vector<std::string>& files, Labels labels, Author author,
               ReadResult& result) {
  TrainSpec& spec = result.spec;
  const std::string& file = spec.file;
  if (tree.kind != YamlNode::Kind::broken) {
    if (!tree.is_map()) {
      result.issues.push_back({tree.where, fmt::format("expected a config with the keys version, "
                                                       "data, model, ..., found {}",
                                                       found_text(tree))});
    } else if (!is_newer_version(tree, result.issues)) {
      Binder(tables.root, file, result.issues, spec.origins, labels, author)
          .read_object(tables.root, &spec, tree, "");
      Checker(catalog, spec, author == Author::user, result.issues).check();
    }
  }
  sort_issues(result.issues, files);
}

ReadResult read_any(const Catalog& catalog, const std::string& text, const std::string& file,
                    const std::vector<std::string>& overrides, bool stored) {
  const SpecTables tables(catalog);
  ReadResult result;
  result.spec.file = file;
  std::vector<std::string> files;
  const YamlNode tree =
      load_tree(tables, catalog, text, file, overrides, stored, files, result.issues);
  read_tree(catalog, tables, tree, files, Labels::needed, stored ? Author::dpt : Author::user,
            result);
  return result;
}

/// Replaces a child of `to` by that of `from`; removes it if `from` has none.
void replace_child(YamlNode& to, const YamlNode& from, const char* key) {
  remove_child(to, key);
  if (const YamlNode* child = from.find(key)) to.children.push_back(*child);
}

/// Replaces the data section and the seed of the stored tree by those of another config. Keeps the
/// fields that determine the model's inputs.
void replace_data(YamlNode& stored, const YamlNode& other, std::vector<ConfigIssue>& issues) {
  if (other.kind == YamlNode::Kind::broken) return;
  const YamlNode* own = other.is_map() ? other.find("data") : nullptr;
  if (!own || !own->is_map()) {
    issues.push_back({own ? own->where : other.where,
                      fmt::format("expected a config whose section 'data' is a mapping, found {}",
                                  own              ? found_text(*own)
                                  : other.is_map() ? "none"
                                                   : found_text(other))});
    return;
  }
  YamlNode data = *own;
  if (const YamlNode* before = stored.find("data")) {
    for (const char* key : {"batch_size", "normalize", "transforms"}) {
      replace_child(data, *before, key);
    }
    // Keep the run's decoding of images unless the new section sets it.
    for (const char* key : {"on_bad_sample", "exif_orientation"}) {
      if (!data.find(key)) replace_child(data, *before, key);
    }
    if (!data.find("exif_orientation")) {
      // A run of a release without this field ignored the orientation.
      YamlNode ignored;
      ignored.kind = YamlNode::Kind::scalar;
      ignored.key = "exif_orientation";
      ignored.text = name_of(ExifOrientation::ignore);
      ignored.where = before->where;
      data.children.push_back(std::move(ignored));
    }
  }
  for (const char* key : {"cache", "cache_shorter_side"}) remove_child(data, key);
  remove_child(stored, "data");
  stored.children.push_back(std::move(data));
  replace_child(stored, other, "seed");
}

}  // namespace

ReadResult read_spec_text(const Catalog& catalog, const std::string& text, const std::string& file,
                          const std::vector<std::string>& overrides) {
  return read_any(catalog, text, file, overrides, false);
}

ReadResult read_spec(const Catalog& catalog, const std::string& file,
                     const std::vector<std::string>& overrides) {
  return read_spec_text(catalog, read_config_text(file), file, overrides);
}

TrainSpec load_spec(const Catalog& catalog, const std::string& file,
                    const std::vector<std::string>& overrides) {
  return spec_or_throw(read_spec(catalog, file, overrides));
}

TrainSpec load_spec_text(const Catalog& catalog, const std::string& text, const std::string& file,
                         const std::vector<std::string>& overrides) {
  return spec_or_throw(read_spec_text(catalog, text, file, overrides));
}

TrainSpec load_stored_spec(const Catalog& catalog, const std::string& text, const std::string& file,
                           const std::vector<std::string>& overrides) {
  ReadResult stored = read_any(catalog, text, file, {}, true);
  if (!stored.issues.empty()) {
    fail(ErrorKind::data, "{}: the config stored in it cannot be read:\n{}", file,
         text_of(stored.issues));
  }
  if (overrides.empty()) return std::move(stored.spec);
  return spec_or_throw(read_any(catalog, text, file, overrides, true));
}

TrainSpec load_spec_to_predict(const Catalog& catalog, const std::string& text,
                               const std::string& file, const std::vector<std::string>& overrides,
                               const DataToPredict& samples) {
  (void)load_stored_spec(catalog, text,
                         file);  // throws if the stored config is invalid
  const SpecTables tables(catalog);
  ReadResult result;
  result.spec.file = file;
  std::vector<std::string> files, all = overrides;
  if (samples.config.empty()) {
    all.insert(all.end(), samples.overrides.begin(), samples.overrides.end());
  }
  YamlNode tree = load_tree(tables, catalog, text, file, all, true, files, result.issues);
  if (!samples.config.empty()) {
    replace_data(tree,
                 load_data_tree(tables, read_config_text(samples.config), samples.config,
                                samples.overrides, files, result.issues),
                 result.issues);
  }
  // Early stopping needs validation samples, which these data may lack.
  if (YamlNode* train = tree.find("train")) remove_child(*train, "early_stopping");
  read_tree(catalog, tables, tree, files,
            samples.needs_labels ? Labels::needed : Labels::not_needed, Author::dpt, result);
  return spec_or_throw(std::move(result));
}

}  // namespace dpt
