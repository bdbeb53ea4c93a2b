#include "engine/checkpoints/run_metadata.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <variant>

#include <fmt/ranges.h>

#include "engine/checkpoints/state_checks.h"
#include "engine/config/target_kinds.h"
#include "kernels/base/error.h"
#include "kernels/base/json_text.h"

namespace dpt {
namespace {

using Json = nlohmann::json;

/// Field of RunState, stored with the key "dpt.NAME". `since_minor` is the minor version that added
/// the field; files of older versions leave the field at its default.
struct StateField {
  const char* name;
  std::variant<std::int64_t RunState::*, double RunState::*, std::optional<double> RunState::*,
               std::vector<std::int64_t> RunState::*, std::string RunState::*,
               std::vector<double> RunState::*, NamedValues RunState::*>
      member;
  int since_minor = 0;
};
const StateField kStateFields[] = {
    {"step", &RunState::step},
    {"epoch", &RunState::epoch},
    {"position", &RunState::position},
    {"best", &RunState::best},
    {"best_step", &RunState::best_step},
    {"early_best", &RunState::early_best},
    {"bad_evaluations", &RunState::bad_evaluations},
    {"epoch_loss_sum", &RunState::epoch_loss_sum},
    {"epoch_correct", &RunState::epoch_correct},
    {"device_weights", &RunState::device_weights, 1},
    {"best_monitor", &RunState::best_monitor, 2},
    {"best_checksum", &RunState::best_checksum, 2},
    {"early_monitor", &RunState::early_monitor, 2},
    {"train_loss", &RunState::train_loss, 2},
    {"train_accuracy", &RunState::train_accuracy, 2},
    {"val_loss", &RunState::val_loss, 2},
    {"val_accuracy", &RunState::val_accuracy, 2},
    {"val_n", &RunState::val_n, 2},
    {"lr_scale", &RunState::lr_scale, 2},
    {"rollbacks", &RunState::rollbacks, 2},
    {"rollback_step", &RunState::rollback_step, 2},
    {"rollback_candidate", &RunState::rollback_candidate, 2},
    {"skipped_steps", &RunState::skipped_steps, 2},
    {"skipped_in_row", &RunState::skipped_in_row, 2},
    {"epoch_skipped", &RunState::epoch_skipped, 2},
    {"schedule_segments", &RunState::schedule_segments, 4},
    {"best_average_of", &RunState::best_average_of, 3},
    {"best_sum", &RunState::best_sum, 3},
    {"best_weight", &RunState::best_weight, 3},
    {"early_sum", &RunState::early_sum, 3},
    {"early_weight", &RunState::early_weight, 3},
    {"plateau_sum", &RunState::plateau_sum, 3},
    {"plateau_weight", &RunState::plateau_weight, 3},
    {"plateau_scale", &RunState::plateau_scale, 3},
    {"plateau_best", &RunState::plateau_best, 3},
    {"plateau_bad", &RunState::plateau_bad, 3},
    {"plateau_cooldown", &RunState::plateau_cooldown, 3},
    {"epoch_weight", &RunState::epoch_weight, 4},
    {"epoch_labelled", &RunState::epoch_labelled, 4},
    {"epoch_sums", &RunState::epoch_sums, 4},
    {"train_metrics", &RunState::train_metrics, 4},
    {"val_metrics", &RunState::val_metrics, 4},
    {"averaged", &RunState::averaged, 5},
};

// Fails to compile if the number of RunState's fields has changed: add a new field to kStateFields
// and to this list.
[[maybe_unused]] void check_that_all_are_listed(const RunState& state) {
  [[maybe_unused]] const auto& [step, epoch, position, best, best_step, best_monitor, best_checksum,
                                early_best, bad_evaluations, early_monitor, schedule_segments,
                                best_average_of, best_sum, best_weight, early_sum, early_weight,
                                plateau_sum, plateau_weight, plateau_scale, plateau_best,
                                plateau_bad, plateau_cooldown, epoch_loss_sum, epoch_correct,
                                epoch_weight, epoch_labelled, epoch_sums, device_weights,
                                train_loss, train_accuracy, val_loss, val_accuracy, train_metrics,
                                val_metrics, val_n, lr_scale, rollbacks, rollback_step,
                                rollback_candidate, skipped_steps, skipped_in_row, epoch_skipped,
                                averaged] = state;
}

constexpr const char* kNone = "none";  // an unset optional, an empty list

/// Returns the shortest decimal text that reads back to the same bits, independent of the locale.
template <class T>
std::string number_text(T value) {
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, result.ptr};
}

template <class T>
T parse_number(const std::string& path, const std::string& key, const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) {
    fail(ErrorKind::data, "{}: metadata '{}': expected a {}, found '{}'", path, key,
         std::is_integral_v<T> ? "64-bit integer" : "number", text);
  }
  return value;
}

/// Parses a list: "9,1" -> {9, 1}.
template <class T>
std::vector<T> parse_numbers(const std::string& path, const std::string& key,
                             const std::string& text) {
  std::vector<T> numbers;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    numbers.push_back(parse_number<T>(path, key, text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return numbers;
}

/// Names of keys in older files, by current key.
const std::map<std::string, std::string> kFormerKeys = {{"dpt.device_weights", "dpt.shares"}};

const std::string& at(const std::string& path, const Metadata& metadata, const std::string& key) {
  auto found = metadata.find(key);
  if (found == metadata.end()) {
    const auto former = kFormerKeys.find(key);
    if (former != kFormerKeys.end()) found = metadata.find(former->second);
  }
  if (found == metadata.end()) {
    fail(ErrorKind::data, "{}: expected metadata '{}', found none", path, key);
  }
  return found->second;
}

std::string list_text(const std::vector<std::string>& list) {
  // Class names may come from folder names, which may not be UTF-8.
  return json_text(Json(list));
}

std::vector<std::string> parse_list(const std::string& path, const Metadata& metadata,
                                    const std::string& key) {
  const std::string& text = at(path, metadata, key);
  const Json json = Json::parse(text, nullptr, false);
  std::vector<std::string> list;
  bool good = json.is_array();
  if (good) {
    for (const Json& item : json) {
      good = good && item.is_string();
      if (good) list.push_back(item.get<std::string>());
    }
  }
  if (!good) {
    fail(ErrorKind::data, "{}: metadata '{}': expected a JSON list of strings, found '{}'", path,
         key, text.substr(0, 100));
  }
  return list;
}

/// Returns values as [["accuracy_top5", 0.9], ...]; non-finite ones become null.
std::string values_text(const NamedValues& values) {
  Json list = Json::array();
  for (const auto& [name, value] : values) {
    list.push_back({name, std::isfinite(value) ? Json(value) : Json()});
  }
  return json_text(list);
}

NamedValues parse_values(const std::string& path, const std::string& key, const std::string& text) {
  const Json list = Json::parse(text, nullptr, false);
  const auto is_pair = [](const Json& each) {
    return each.is_array() && each.size() == 2 && each[0].is_string() &&
           (each[1].is_number() || each[1].is_null());
  };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_pair)) {
    fail(ErrorKind::data,
         "{}: metadata '{}': expected a JSON list of [name, number] pairs, found '{}'", path, key,
         text.substr(0, 100));
  }
  NamedValues values;
  for (const Json& each : list) {
    values.emplace_back(each[0].get<std::string>(),
                        each[1].is_null() ? NAN : each[1].get<double>());
  }
  return values;
}

void put_state(const RunState& state, Metadata& metadata) {
  for (const StateField& field : kStateFields) {
    std::string& text = metadata[std::string("dpt.") + field.name];
    std::visit(
        [&](auto member) {
          const auto& value = state.*member;
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::optional<double>>) {
            text = value ? number_text(*value) : kNone;
          } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>,
                                              std::vector<std::int64_t>>) {
            text = value.empty() ? kNone : fmt::format("{}", fmt::join(value, ","));
          } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::vector<double>>) {
            std::vector<std::string> numbers;
            for (const double each : value) numbers.push_back(number_text(each));
            text = numbers.empty() ? kNone : fmt::format("{}", fmt::join(numbers, ","));
          } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, NamedValues>) {
            text = values_text(value);
          } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
            text = value.empty() ? kNone : value;
          } else {
            text = number_text(value);
          }
        },
        field.member);
  }
}

RunState parse_state(const std::string& path, const Metadata& metadata, int minor) {
  RunState state;
  for (const StateField& field : kStateFields) {
    if (field.since_minor > minor) continue;
    const std::string key = std::string("dpt.") + field.name;
    const std::string& text = at(path, metadata, key);
    std::visit(
        [&](auto member) {
          auto& value = state.*member;
          using T = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<T, std::optional<double>>) {
            if (text != kNone) value = parse_number<double>(path, key, text);
          } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
            if (text != kNone) value = parse_numbers<std::int64_t>(path, key, text);
          } else if constexpr (std::is_same_v<T, std::vector<double>>) {
            if (text != kNone) value = parse_numbers<double>(path, key, text);
          } else if constexpr (std::is_same_v<T, NamedValues>) {
            value = parse_values(path, key, text);
          } else if constexpr (std::is_same_v<T, std::string>) {
            if (text != kNone) value = text;
          } else {
            value = parse_number<T>(path, key, text);
          }
        },
        field.member);
  }
  return state;
}

}  // namespace

Metadata state_metadata(const RunState& state) {
  Metadata metadata;
  put_state(state, metadata);
  return metadata;
}

RunState parse_state_metadata(const Metadata& metadata) {
  return parse_state("the state of rank 0", metadata, kSchemaMinor);
}

SchemaVersion read_version(const std::string& path, const Metadata& metadata) {
  const auto found = metadata.find("dpt.version");
  if (found == metadata.end()) {
    fail(ErrorKind::data,
         "{}: expected a checkpoint of dpt, found a safetensors file without 'dpt.version'; to "
         "load only its weights, use --weights",
         path);
  }
  const std::string& text = found->second;
  const char* end = text.data() + text.size();
  SchemaVersion version;
  auto result = std::from_chars(text.data(), end, version.major);
  bool good = result.ec == std::errc() && result.ptr != end && *result.ptr == '.';
  if (good) {
    result = std::from_chars(result.ptr + 1, end, version.minor);
    good = result.ec == std::errc() && result.ptr == end;
  }
  if (!good || version.major < 1 || version.minor < 0) {
    fail(ErrorKind::data, "{}: metadata 'dpt.version': expected MAJOR.MINOR, found '{}'", path,
         text);
  }
  if (version.major > kSchemaMajor) {
    fail(ErrorKind::data,
         "{}: was written by a newer dpt: its checkpoint version is {}, and this program reads up "
         "to {}.x; use the dpt that wrote it, or a newer one",
         path, text, kSchemaMajor);
  }
  return version;
}

std::optional<DType> sample_type_of(const std::string& name) {
  for (const DType type : {DType::u8, DType::f32}) {
    if (name == name_of(type)) return type;
  }
  return std::nullopt;
}

Metadata to_metadata(const Checkpoint& checkpoint) {
  Metadata metadata;
  metadata["format"] = "pt";  // read by Python loaders
  metadata["dpt.version"] = fmt::format("{}.{}", kSchemaMajor, kSchemaMinor);
  put_state(checkpoint.state, metadata);
  metadata["dpt.config"] = checkpoint.config;
  metadata["dpt.classes"] = list_text(checkpoint.classes);
  if (checkpoint.targets) metadata["dpt.targets"] = name_of(*checkpoint.targets);
  if (!checkpoint.features.empty()) metadata["dpt.features"] = list_text(checkpoint.features);
  if (checkpoint.sample_type) metadata["dpt.sample_type"] = name_of(*checkpoint.sample_type);
  metadata["dpt.dataset_fingerprint"] = checkpoint.dataset_fingerprint;
  if (checkpoint.train_samples > 0) {
    metadata["dpt.train_samples"] = number_text(checkpoint.train_samples);
  }
  metadata["dpt.test_fingerprint"] = checkpoint.test_fingerprint;
  if (!checkpoint.val_fingerprint.empty()) {
    metadata["dpt.val_fingerprint"] = checkpoint.val_fingerprint;
  }
  metadata["dpt.shards"] = number_text(checkpoint.shards);
  metadata["dpt.devices"] = list_text(checkpoint.devices);
  metadata["dpt.made_by"] = checkpoint.made_by;
  std::vector<std::string> states;
  for (const auto& [name, values] : checkpoint.optimizer) states.push_back(name);
  metadata["dpt.optimizer_states"] = list_text(states);
  return metadata;
}

CheckpointHeader from_metadata(const std::string& path, const Metadata& metadata) {
  const SchemaVersion version = read_version(path, metadata);
  CheckpointHeader header;
  header.state = parse_state(path, metadata, version.minor);
  if (version.minor < 4) {
    // In older files every sample counts with the weight 1.
    header.state.epoch_weight = header.state.epoch_labelled =
        static_cast<double>(header.state.position - header.state.epoch_skipped);
  }
  // Older releases could keep a NaN as the best value, and no value would ever improve on it.
  for (auto* best : {&header.state.best, &header.state.early_best, &header.state.plateau_best}) {
    if (*best && std::isnan(**best)) best->reset();
  }
  header.config = at(path, metadata, "dpt.config");
  header.classes = parse_list(path, metadata, "dpt.classes");
  if (const auto it = metadata.find("dpt.targets"); it != metadata.end()) {
    header.targets = enum_of<TargetKind>(it->second);
    // A later minor version may have other kinds of targets.
    if (!header.targets && version.minor <= kSchemaMinor) {
      fail(ErrorKind::data, "{}: metadata 'dpt.targets': expected one of {}, found '{}'", path,
           fmt::join(all_names<TargetKind>(), ", "), it->second);
    }
  }
  if (metadata.count("dpt.features") > 0) {
    header.features = parse_list(path, metadata, "dpt.features");
  }
  if (const auto it = metadata.find("dpt.sample_type"); it != metadata.end()) {
    header.sample_type = sample_type_of(it->second);
    if (!header.sample_type && version.minor <= kSchemaMinor) {
      fail(ErrorKind::data, "{}: metadata 'dpt.sample_type': expected u8 or fp32, found '{}'", path,
           it->second);
    }
  }
  header.dataset_fingerprint = at(path, metadata, "dpt.dataset_fingerprint");
  if (const auto it = metadata.find("dpt.test_fingerprint"); it != metadata.end()) {
    header.test_fingerprint = it->second;
  }
  if (const auto it = metadata.find("dpt.val_fingerprint"); it != metadata.end()) {
    header.val_fingerprint = it->second;
  }
  if (const auto it = metadata.find("dpt.train_samples"); it != metadata.end()) {
    header.train_samples = parse_number<std::int64_t>(path, "dpt.train_samples", it->second);
  }
  header.shards = parse_number<std::int64_t>(path, "dpt.shards", at(path, metadata, "dpt.shards"));
  header.devices = parse_list(path, metadata, "dpt.devices");
  header.made_by = at(path, metadata, "dpt.made_by");
  check_state(path, header);
  return header;
}

std::vector<std::string> stored_classes(const std::string& path, const Metadata& metadata) {
  return parse_list(path, metadata, "dpt.classes");
}

std::vector<std::string> optimizer_states(const std::string& path, const Metadata& metadata) {
  return parse_list(path, metadata, "dpt.optimizer_states");
}

}  // namespace dpt
