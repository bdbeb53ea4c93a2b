#include "engine/run/prometheus_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>

#include "engine/processes/stop.h"
#include "engine/run/run_files.h"
#include "engine/run/run_lock.h"
#include "kernels/base/error.h"
#include "kernels/base/file_io.h"
#include "kernels/base/held_path.h"
#include "kernels/base/utf8.h"
#include "kernels/base/utf8_text.h"

namespace dpt {
namespace {

constexpr std::array kStatuses = {"running", "ok", "max_steps", "stopped", "failed"};

double unix_time() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

std::string value_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

/// Returns the text as a quoted label value, with U+FFFD for bytes that are not UTF-8.
std::string escaped_label(const std::string& text) {
  std::string escaped;
  for (const char c : utf8_text(text)) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

/// Lines of the format. Every metric is a gauge, because a resume or a rollback may lower it.
class MetricLines {
 public:
  MetricLines(const std::string& run, const std::string& folder)
      : labels_(
            fmt::format("run=\"{}\",folder=\"{}\"", escaped_label(run), escaped_label(folder))) {}

  void describe(const std::string& name, const std::string& help) {
    name_ = name;
    text_ += fmt::format("# HELP {} {}\n# TYPE {} gauge\n", name, help, name);
  }
  using Labels = std::vector<std::pair<const char*, std::string>>;
  void sample(const std::string& value, const Labels& more = {}) {
    text_ += fmt::format("{}{{{}", name_, labels_);
    for (const auto& [label, text] : more) {
      text_ += fmt::format(",{}=\"{}\"", label, escaped_label(text));
    }
    text_ += fmt::format("}} {}\n", value);
  }
  void metric(const std::string& name, const std::string& help, const std::string& value) {
    describe(name, help);
    sample(value);
  }
  void metric(const std::string& name, const std::string& help,
              const std::optional<double>& value) {
    if (value) metric(name, help, value_text(*value));
  }
  void count(const std::string& name, const std::string& help, std::int64_t value) {
    metric(name, help, fmt::format("{}", value));
  }
  const std::string& text() const { return text_; }

 private:
  std::string labels_, name_, text_;
};

/// Returns the measured values of an `eval` line.
NamedValues values_of(const Json& fields) {
  NamedValues values;
  for (const auto& [name, value] : fields.items()) {
    const bool is_measured =
        name != "epoch" && name != "step" && name != "n" && name != "unreadable";
    if (value.is_number() && is_measured) values.emplace_back(name, value.get<double>());
  }
  return values;
}

/// Returns the labels of the run that wrote the file; empty if it has none.
std::string labels_in(const std::string& path) {
  std::ifstream in(path);
  const std::string begin = "dpt_running{";
  for (std::string line; std::getline(in, line);) {
    const std::size_t end = line.rfind('}');
    if (line.starts_with(begin) && end != line.npos) {
      return line.substr(begin.size(), end - begin.size());
    }
  }
  return {};
}

void set_evaluation(PrometheusState& state, const std::string& split, NamedValues values) {
  for (auto& [name, present] : state.evaluations) {
    if (name == split) {
      present = std::move(values);
      return;
    }
  }
  state.evaluations.emplace_back(split, std::move(values));
}

}  // namespace

void PrometheusState::take_best(const RunState& from) {
  best = from.best;
  best_step = from.best_step;
  // Leave out the direction, which follows the name of the monitor.
  best_monitor = from.best_monitor.substr(0, from.best_monitor.find(' '));
}

void PrometheusState::take_results(const RunState& from) {
  take_best(from);
  if (!from.val_loss) return;
  NamedValues values = {{"loss", *from.val_loss}};
  if (from.val_accuracy) values.emplace_back("accuracy", *from.val_accuracy);
  values.insert(values.end(), from.val_metrics.begin(), from.val_metrics.end());
  set_evaluation(*this, "val", std::move(values));
}

std::string prometheus_text(const PrometheusState& state) {
  MetricLines lines(state.run, state.folder);
  lines.count("dpt_running", "1 while the run trains, 0 after its end.",
              state.status == "running" ? 1 : 0);
  lines.describe("dpt_status", "1 for the current status of the run, 0 for the others.");
  for (const char* status : kStatuses) {
    lines.sample(state.status == status ? "1" : "0", {{"status", status}});
  }
  if (state.exit_code) {
    lines.count("dpt_exit_code", "Exit code of dpt train.", *state.exit_code);
  }
  lines.metric("dpt_start_timestamp_seconds", "Unix time at which the process began to train.",
               fmt::format("{:.3f}", state.begun));
  lines.metric("dpt_last_step_timestamp_seconds",
               "Unix time at which the last step ended; before the first, that of the start.",
               fmt::format("{:.3f}", state.last_step));
  lines.count("dpt_epoch", "Epoch of the last step, from 1.", state.epoch);
  lines.count("dpt_epochs", "Epochs that the config asks for.", state.epochs);
  lines.count("dpt_step", "Steps completed.", state.step);
  lines.count("dpt_steps", "Steps of all epochs.", state.steps);
  lines.metric("dpt_train_loss", "Loss of the last step's batch.", state.loss);
  lines.metric("dpt_learning_rate", "Learning rate of the last step.", state.lr);
  lines.metric("dpt_images_per_second",
               "Training samples per second since the last update, without evaluations and saves.",
               state.images_per_s);
  if (!state.evaluations.empty()) {
    lines.describe("dpt_evaluation", "Results of the last evaluation of a split.");
    for (const auto& [split, values] : state.evaluations) {
      for (const auto& [name, value] : values) {
        lines.sample(value_text(value), {{"split", split}, {"metric", name}});
      }
    }
  }
  if (state.best) {
    lines.describe("dpt_best", "Best value of checkpoint.keep_best.monitor so far.");
    lines.sample(value_text(*state.best), {{"monitor", state.best_monitor}});
    lines.count("dpt_best_step", "Step of the best value.", state.best_step);
  }
  return lines.text();
}

std::string why_no_prometheus_file(const std::string& path) {
  if (find_bad_utf8(path) != std::string::npos) {
    return fmt::format(
        "{}: expected a path in UTF-8, as the config is: rename the folder or the file", path);
  }
  const std::string folder = folder_of(path);
  if (entry_type(folder) != EntryType::folder) {
    return fmt::format("{}: expected an existing folder, found {}: create it first", folder,
                       entry_type(folder) == EntryType::none ? "none" : "a file");
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    return fmt::format("{}: cannot write to the folder: {}", folder,
                       std::generic_category().message(errno));
  }
  const EntryType type = entry_type(path);
  if (type == EntryType::none) return {};
  if (type != EntryType::file) {
    return fmt::format("{}: expected a file, found {}", path,
                       type == EntryType::folder ? "a folder" : "a device, pipe or socket");
  }
  const std::string mark = kPrometheusMark;
  std::string begin(mark.size(), '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in) return fmt::format("{}: the file exists and cannot be read: name another file", path);
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(in.gcount()));
  if (begin.empty() || begin == mark) return {};
  return fmt::format("{}: the file exists and was not written by dpt: name another file", path);
}

FileHandle lock_prometheus_file(const std::string& path) {
  while (true) {
    FileHandle file = open_file(path, O_RDWR | O_CREAT | O_NONBLOCK, 0666);
    const LockResult result = file.is_open() ? try_lock(file) : LockResult::failed;
    if (result == LockResult::failed) return {};
    if (result == LockResult::held_by_other) {
      const std::string labels = labels_in(path);
      fail(ErrorKind::usage,
           "log.prometheus: {} belongs to a run that is still training{}: name another file, or "
           "wait until that run ends",
           path, labels.empty() ? labels : " (" + labels + ")");
    }
    // The other run may have replaced the file and ended in between.
    if (is_same_entry(path, file)) return file;
  }
}

PrometheusFile::PrometheusFile(std::string path, PrometheusState state, RunLog::Warn warn,
                               std::chrono::milliseconds interval)
    : path_(std::move(path)),
      state_(std::move(state)),
      warn_(std::move(warn)),
      interval_(interval) {
  state_.begun = state_.last_step = unix_time();
}

void PrometheusFile::follow(RunLog& log) {
  log.follow([this](const char* name, const Json& fields) { event(name, fields); });
  log.follow_progress([this](const RunProgress& now) { progress(now); });
}

void PrometheusFile::event(const std::string& name, const Json& fields) {
  if (name == "run_start") return write();
  if (name == "run_end") state_.status = fields.value("status", "failed");
  if (name != "eval") return;
  set_evaluation(state_, fields.value("split", ""), values_of(fields));
  update();
}

void PrometheusFile::progress(const RunProgress& now) {
  state_.epoch = now.epoch;
  state_.step = now.step;
  if (now.samples == 0) {
    state_.take_best(*now.state);
  } else {
    state_.loss = now.loss;
    state_.lr = now.lr;
    state_.last_step = unix_time();
    samples_ += now.samples;
    seconds_ += now.seconds;
  }
  update();
}

void PrometheusFile::update() {
  if (std::chrono::steady_clock::now() - written_ >= interval_) write();
}

void PrometheusFile::end(int exit_code) {
  state_.exit_code = exit_code;
  if (state_.status == "running") {
    const bool is_stop = stop_of_exit_code(exit_code) != StopReason::none;
    state_.status = is_stop ? "stopped" : "failed";
  }
  write();
}

void PrometheusFile::write() {
  written_ = std::chrono::steady_clock::now();
  if (samples_ > 0 && seconds_ > 0) {
    state_.images_per_s = std::round(static_cast<double>(samples_) / seconds_);
    samples_ = 0;
    seconds_ = 0;
  }
  try {
    const std::string text = prometheus_text(state_);
    AtomicFile file(path_);
    FileHandle next = open_file(path_ + kTemporarySuffix, O_RDWR);
    if (next.is_open()) static_cast<void>(try_lock(next));
    file.write(std::as_bytes(std::span(text)));
    file.commit_unsynced();
    lock_ = std::move(next);
  } catch (const Error& error) {
    if (!warn_ || std::exchange(warned_, true)) return;
    warn_(fmt::format(
        "{}; the run continues, but Prometheus does not see its progress (log.prometheus)",
        error.what()));
  }
}

}  // namespace dpt
