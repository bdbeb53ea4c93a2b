#include "engine/run/run_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/checkpoints/checkpoint.h"
#include "engine/run/run_log.h"
#include "kernels/base/error.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/file_io.h"
#include "kernels/base/json_text.h"
#include "kernels/base/secret.h"

namespace dpt {
namespace {

/// Names of everything that a run, or dpt report, writes into the folder.
constexpr std::array kFiles = {"checkpoints",   "best.safetensors",
                               "config.yaml",   "command.txt",
                               "env.json",      "train.log",
                               "metrics.jsonl", "metrics.abandoned.jsonl",
                               "summary.json",  "logs",
                               "tensorboard",   "report.html"};

constexpr std::string_view kAbandoned = "abandoned-";

/// Names of dpt's other entries.
constexpr std::array kOthers = {kLockFile, kMarkerFile, kReplaced, kMoving, kRestoring};

bool is_one_of(std::string_view name, std::span<const char* const> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Returns true for dpt's own files in logs/ or tensorboard/, where others may put files too.
bool is_log_of_dpt(std::string_view folder, std::string_view name) {
  if (folder == "tensorboard") {
    return name.starts_with("events.out.tfevents.") && name.ends_with(".dpt");
  }
  constexpr std::string_view kPrefix = "rank-", kSuffix = ".log";
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return false;
  name.remove_prefix(kPrefix.size());
  return name.size() > kSuffix.size() && is_number(name.substr(0, name.size() - kSuffix.size()));
}

bool is_shared_folder(std::string_view name) {
  return name == "logs" || name == "tensorboard";
}

/// Returns up to `bytes` from the beginning of a regular file; empty for any other entry.
std::string beginning_of(const HeldPath& file, std::uint64_t bytes) {
  if (entry_type(file) != EntryType::file) return {};
  try {
    std::uint64_t size = 0;
    const FileHandle opened = open_regular_file(file, size);
    std::string text(std::min(size, bytes), '\0');
    read_exactly(opened, file.text(), 0, std::as_writable_bytes(std::span(text)));
    return text;
  } catch (const Error&) {
    return {};
  }
}

/// Returns the marker; null if the file is missing or not dpt's.
Json read_marker(const HeldPath& folder) {
  const std::string text = beginning_of(folder / kMarkerFile, 1 << 20);
  Json marker = Json::parse(text, nullptr, false);
  const bool is_dpts = marker.is_object() && marker.contains("v") && marker.contains("files");
  return is_dpts ? marker : Json();
}

/// Returns the names in the marker. Leaves out paths, because dpt never writes any.
std::vector<std::string> names_in_marker(const HeldPath& folder) {
  std::vector<std::string> names;
  const Json marker = read_marker(folder);
  const auto files = marker.is_object() ? marker.find("files") : marker.end();
  if (files == marker.end() || !files->is_array()) return names;
  for (const Json& name : *files) {
    if (!name.is_string()) continue;
    std::string plain = name.get<std::string>();
    const bool is_path = plain.empty() || plain.front() == '.' || plain.find('/') != plain.npos;
    if (!is_path) names.push_back(std::move(plain));
  }
  return names;
}

void replace_marker(const HeldPath& folder, const Json& marker) {
  write_file_atomically(folder / kMarkerFile, json_text(marker) + "\n");
}

bool is_checkpoint(const HeldPath& file) {
  return entry_type(file) == EntryType::file && defect_of(file).empty();
}

bool has_checkpoint(const HeldPath& folder) {
  const HeldPath checkpoints = folder / "checkpoints";
  if (entry_type(checkpoints) == EntryType::folder) {
    for (const std::int64_t step : list_steps(checkpoints)) {
      if (is_checkpoint(checkpoints / checkpoint_name(step))) return true;
    }
  }
  return is_checkpoint(folder / "best.safetensors");
}

bool is_run_without_marker(const HeldPath& folder) {
  return has_log_of_dpt(folder) || has_checkpoint(folder);
}

/// Returns true if a run that writes under this name would destroy something. An empty file or
/// folder (created for the run, or by a shell's redirection) holds nothing, and pipes are not
/// written to.
bool holds_something(const HeldPath& path) {
  const EntryType type = entry_type(path);
  if (type == EntryType::folder) {
    const std::vector<std::string> names = list_names(path);
    return !std::all_of(names.begin(), names.end(), is_record_of_checkpoints);
  }
  return type == EntryType::file && !beginning_of(path, 1).empty();
}

}  // namespace

bool is_checkpoint_name(std::string_view name) {
  if (number_of_abandoned(name) >= 0) return true;
  if (name.ends_with(kTemporarySuffix)) {
    name.remove_suffix(std::string_view(kTemporarySuffix).size());
  }
  return step_of_checkpoint(name) >= 0;
}

bool is_record_of_checkpoints(std::string_view name) {
  return name == kLockFile || name == kOwnerFile;
}

bool is_number(std::string_view text) {
  const bool has_digits = std::all_of(text.begin(), text.end(),
                                      [](char digit) { return digit >= '0' && digit <= '9'; });
  return has_digits && !text.empty() && (text.size() == 1 || text.front() != '0');
}

std::string abandoned_name(std::int64_t number) {
  return fmt::format("{}{}", kAbandoned, number);
}

std::int64_t number_of_abandoned(std::string_view name) {
  if (!name.starts_with(kAbandoned)) return -1;
  name.remove_prefix(kAbandoned.size());
  std::int64_t number = -1;
  const auto result = std::from_chars(name.data(), name.data() + name.size(), number);
  return is_number(name) && result.ec == std::errc() ? number : -1;
}

bool has_log_of_dpt(const HeldPath& folder) {
  const std::string text = beginning_of(folder / "metrics.jsonl", 4096);
  if (!text.starts_with(R"({"v":1,"event":")")) return false;
  const std::string_view event = std::string_view(text).substr(16);
  // The log begins with log_gap if the disk was full at first.
  return event.starts_with("processes\"") || event.starts_with("run_start\"") ||
         event.starts_with("log_gap\"");
}

bool is_marked(const HeldPath& folder) {
  return !read_marker(folder).is_null();
}

bool is_run_of_dpt(const HeldPath& folder) {
  if (is_marked(folder)) return true;
  for (const HeldPath& place :
       {folder, folder / kReplaced, folder / kMoving, folder / kRestoring}) {
    if (is_run_without_marker(place)) return true;
  }
  return false;
}

std::vector<std::string> names_in_the_way(const HeldPath& folder) {
  std::vector<std::string> found;
  if (entry_type(folder) != EntryType::folder || is_run_of_dpt(folder)) return found;
  for (const char* name : kFiles) {
    if (is_shared_folder(name)) continue;
    for (const std::string& each : {std::string(name), name + std::string(kTemporarySuffix)}) {
      if (holds_something(folder / each)) found.push_back(each);
    }
  }
  // If all files in one of these folders have names of dpt's files, a run would move them as if
  // they were its own.
  for (const char* name : {kReplaced, kMoving, kRestoring, kRemoved}) {
    const std::vector<std::string> inside = entry_type(folder / name, false) == EntryType::folder
                                                ? list_names(folder / name)
                                                : std::vector<std::string>();
    const bool is_dpts = std::all_of(inside.begin(), inside.end(), [](const std::string& each) {
      return is_one_of(each, kFiles);
    });
    if (!inside.empty() && is_dpts) found.emplace_back(name);
  }
  return found;
}

std::string id_in_marker(const HeldPath& folder) {
  const Json marker = read_marker(folder);
  const bool has_id = marker.is_object() && marker.contains("id") && marker["id"].is_string();
  return has_id ? marker["id"].get<std::string>() : std::string();
}

std::string make_id_in_marker(const HeldPath& folder) {
  Json marker = read_marker(folder);
  if (const std::string id = id_in_marker(folder); !id.empty()) return id;
  std::string id = random_text(16);
  marker["id"] = id;
  replace_marker(folder, marker);
  return id;
}

void write_marker(const HeldPath& folder, const std::vector<std::string>& more) {
  std::vector<std::string> names = names_in_marker(folder);
  const std::size_t before = names.size();
  std::vector<std::string> wanted(kFiles.begin(), kFiles.end());
  wanted.insert(wanted.end(), more.begin(), more.end());
  for (const std::string& name : wanted) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  if (is_marked(folder) && names.size() == before) return;
  Json marker = read_marker(folder);
  marker["v"] = 1;
  marker["files"] = names;
  replace_marker(folder, marker);
}

OwnNames::OwnNames(const HeldPath& folder) : folder_(folder), names_(names_in_marker(folder)) {}

bool OwnNames::has(std::string_view name) const {
  std::string_view whole = name;
  if (whole.ends_with(kTemporarySuffix)) {
    whole.remove_suffix(std::string_view(kTemporarySuffix).size());
  }
  return is_one_of(whole, kFiles) || is_one_of(whole, kOthers) ||
         (std::find(names_.begin(), names_.end(), whole) != names_.end() &&
          entry_type(folder_ / name, false) != EntryType::folder) ||
         is_output_of_dpt(folder_ / name);
}

std::vector<std::string> entries_of_run(const HeldPath& folder) {
  const OwnNames own(folder);
  std::vector<std::string> entries, rest;
  for (const std::string& name : list_names(folder)) {
    if (is_one_of(name, kOthers) || name.ends_with(kTemporarySuffix) || !own.has(name)) continue;
    if (name == "checkpoints") {
      entries.push_back(name);
    } else if (is_shared_folder(name) && entry_type(folder / name) == EntryType::folder) {
      for (const std::string& inner : list_names(folder / name)) {
        const bool is_own =
            is_log_of_dpt(name, inner) && (name != "logs" || is_message_log(folder / name / inner));
        if (is_own) rest.push_back(name + "/" + inner);
      }
    } else {
      rest.push_back(name);
    }
  }
  entries.insert(entries.end(), rest.begin(), rest.end());
  return entries;
}

bool is_message_log(const HeldPath& file) {
  // "2026-11-25T09:30:00+01:00 info rank 1 of 2"; Progress::also_to writes it.
  constexpr std::string_view kTime = "0000-00-00T00:00:00+00:00 ";
  const std::string begin = beginning_of(file, 64);
  const std::string_view text = begin;
  if (text.size() < kTime.size()) return false;
  for (std::size_t i = 0; i < kTime.size(); ++i) {
    const bool is_digit = text[i] >= '0' && text[i] <= '9';
    const bool is_sign = kTime[i] == '+' && (text[i] == '+' || text[i] == '-');
    if (kTime[i] == '0' ? !is_digit : !is_sign && text[i] != kTime[i]) return false;
  }
  const std::string_view level = text.substr(kTime.size());
  return level.starts_with("info ") || level.starts_with("warning ");
}

bool is_output_of_dpt(const HeldPath& file) {
  const std::string text = beginning_of(file, 4096);
  const std::string mark = kMarkdownMark;
  return text.starts_with(mark + "train: ") || text.starts_with(mark + "eval: ") ||
         text.starts_with(kJUnitMark) || text.starts_with(kPrometheusMark) ||
         text.find(kReportMarker) != std::string::npos;
}

}  // namespace dpt
