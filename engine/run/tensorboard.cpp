#include "engine/run/tensorboard.h"

#include <fcntl.h>
#include <tensorboard.pb.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <vector>

#include "engine/run/tf_records.h"
#include "kernels/base/error.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/held_path.h"

namespace dpt {
namespace {

constexpr const char* kPrefix = "events.out.tfevents.";
constexpr const char* kSuffix = ".dpt";

double now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

std::string record_of(tensorboard::Event& event) {
  event.set_wall_time(now());
  return tf_record(event.SerializeAsString());
}

/// Returns the first part of an event's tags; empty for an event without scalars.
std::string group_of(const std::string& name, const Json& fields) {
  if (name == "step") return "train";
  if (name == "epoch") return "train_epoch";
  return name == "eval" ? fields.value("split", "") : std::string();
}

/// Adds a number as "train/loss", and the numbers of an object as "train/grad_norms/conv1.weight".
/// TensorBoard groups tags by their first part.
void add_scalars(const std::string& tag, const Json& value, tensorboard::Summary& summary) {
  if (value.is_number()) {
    tensorboard::Value& scalar = *summary.add_value();
    scalar.set_tag(tag);
    scalar.set_simple_value(value.get<float>());
  } else if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) add_scalars(tag + "/" + key, inner, summary);
  }
}

/// Returns true for keys whose number is a position in the run or a number of samples.
bool is_position(const std::string& key) {
  return key == "step" || key == "epoch" || key == "n" || key == "unreadable";
}

std::string hparams_content(const Json& hparams) {
  tensorboard::HparamsPluginData data;
  auto& values = *data.mutable_session_start_info()->mutable_hparams();
  for (const auto& [name, value] : hparams.items()) {
    if (value.is_number()) values[name].set_number_value(value.get<double>());
    if (value.is_string()) values[name].set_string_value(value.get<std::string>());
    if (value.is_boolean()) values[name].set_bool_value(value.get<bool>());
  }
  return data.SerializeAsString();
}

/// Returns a key that is the same for a line of the log and its record.
std::string key_of(const std::string& group, std::int64_t step) {
  return fmt::format("{} {}", group, step);
}

/// Returns the keys of the lines of a log.
std::set<std::string> keys_in(const HeldPath& log) {
  std::set<std::string> keys;
  if (entry_type(log) == EntryType::none) return keys;
  read_log_lines(log, [&](const std::string& line) {
    const Json json =
        Json::parse(line, nullptr, false);  // may be half a line, or another program's
    if (!json.is_object() || !json.contains("event") || !json["event"].is_string()) return;
    const auto step = json.find("step");
    if (step == json.end() || !step->is_number_integer()) return;
    const std::string group = group_of(json["event"].get<std::string>(), json);
    if (!group.empty()) keys.insert(key_of(group, step->get<std::int64_t>()));
  });
  return keys;
}

/// The records of a file that stay: those without scalars, and those whose line is in the log.
struct Kept {
  std::string bytes;
  std::int64_t scalars = 0, dropped = 0;
};
Kept records_to_keep(const std::string& bytes, const std::set<std::string>& keys) {
  Kept kept;
  std::string_view rest = bytes, payload;
  while (next_tf_record(rest, payload)) {
    tensorboard::Event event;
    if (!event.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) break;
    if (event.has_summary() && event.summary().value_size() > 0) {
      const std::string& tag = event.summary().value(0).tag();
      if (keys.count(key_of(tag.substr(0, tag.find('/')), event.step())) == 0) {
        ++kept.dropped;
        continue;
      }
      ++kept.scalars;
    }
    kept.bytes += tf_record(payload);
  }
  return kept;
}

/// Lists the names of dpt's event files in a folder, oldest first.
std::vector<std::string> event_files(const HeldPath& folder) {
  std::vector<std::string> names = list_names(folder);
  std::erase_if(names, [](const std::string& name) {
    return !name.starts_with(kPrefix) || !name.ends_with(kSuffix);
  });
  return names;
}

/// Returns a name for the next file. TensorBoard reads files in name order, so the name begins with
/// a time later than those of all other files.
std::string next_name(const std::vector<std::string>& others) {
  auto time = static_cast<std::int64_t>(now());
  for (const std::string& name : others) {
    const std::int64_t its = std::strtoll(name.c_str() + std::string(kPrefix).size(), nullptr, 10);
    time = std::max(time, its + 1);
  }
  return fmt::format("{}{:010}{}", kPrefix, time, kSuffix);
}

}  // namespace

TensorBoardLog::TensorBoardLog(HeldPath folder, RunLog::Warn warn, const Json& hparams)
    : run_(std::move(folder)),
      folder_(run_ / "tensorboard"),
      warn_(std::move(warn)),
      hparams_(hparams.empty() ? std::string() : hparams_content(hparams)) {}

void TensorBoardLog::event(const std::string& name, const Json& fields) {
  if (name == "run_start" || name == "rollback") return begin(fields.value("step", 0));
  const std::string group = group_of(name, fields);
  if (group.empty() || !path_) return;
  tensorboard::Event event;
  event.set_step(fields.value("step", std::int64_t{0}));
  for (const auto& [key, value] : fields.items()) {
    if (!is_position(key)) add_scalars(group + "/" + key, value, *event.mutable_summary());
  }
  write(record_of(event));
}

void TensorBoardLog::begin(std::int64_t step) {
  file_ = FileHandle();
  whole_ = 0;
  try {
    make_folders(folder_);
    const std::vector<std::string> others = event_files(folder_);
    if (!others.empty()) {
      const std::set<std::string> keys = keys_in(run_ / "metrics.jsonl");
      for (const std::string& name : others) {
        const HeldPath other = folder_ / name;
        const Kept kept = records_to_keep(read_whole_file(other), keys);
        if (kept.scalars == 0) {
          remove_durably(other);
        } else if (kept.dropped > 0) {
          write_file_atomically(other, kept.bytes);
        }
      }
    }
    path_ = folder_ / next_name(others);
  } catch (const Error& error) {
    path_.reset();
    return lose(error.what());
  }
  tensorboard::Event version;
  version.set_file_version("brain.Event:2");
  // Tells a running TensorBoard that has read the old files to discard later steps.
  tensorboard::Event start;
  start.set_step(step + 1);
  start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  std::string records = record_of(version) + record_of(start);
  if (!hparams_.empty()) {
    tensorboard::Event event;
    tensorboard::Value& value = *event.mutable_summary()->add_value();
    value.set_tag("_hparams_/session_start_info");
    tensorboard::SummaryMetadata::PluginData& plugin =
        *value.mutable_metadata()->mutable_plugin_data();
    plugin.set_plugin_name("hparams");
    plugin.set_content(hparams_);
    records += record_of(event);
  }
  write(records);
}

void TensorBoardLog::write(const std::string& record) {
  if (!file_.is_open()) {
    // After a failure, remove a partial record, at which TensorBoard would stop reading.
    file_ = open_file(*path_, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (!file_.is_open()) return lose(std::generic_category().message(errno));
  }
  int error = ::ftruncate(file_.fd(), whole_) == 0 ? 0 : errno;
  if (error == 0) error = write_all(file_.fd(), std::as_bytes(std::span(record)));
  if (error == 0) {
    whole_ += static_cast<std::int64_t>(record.size());
    return;
  }
  if (::ftruncate(file_.fd(), whole_) != 0) file_ = FileHandle();
  lose(std::generic_category().message(error));
}

void TensorBoardLog::lose(const std::string& why) {
  if (!warn_ || std::exchange(warned_, true)) return;
  warn_(
      fmt::format("{}: cannot write: {}; the run continues, but events for TensorBoard are missing",
                  (path_ ? *path_ : folder_).text(), why));
}

}  // namespace dpt
