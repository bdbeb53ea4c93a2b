#include "engine/run/run_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/checkpoints/checkpoint.h"
#include "engine/config/secrets.h"
#include "kernels/base/error.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/held_path.h"
#include "kernels/base/json_text.h"

namespace dpt {
namespace {

constexpr std::uint64_t kBlock = 1 << 16;

/// Replaces non-finite numbers, also inside objects, with null, and appends their names to
/// `nonfinite`.
void drop_nonfinite(const std::string& name, Json& value, std::vector<std::string>& nonfinite) {
  if (value.is_object()) {
    for (auto& [key, inner] : value.items()) drop_nonfinite(name + "." + key, inner, nonfinite);
  } else if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    nonfinite.push_back(name);
    value = nullptr;
  }
}

/// Hides secrets in the paths and messages among the values.
void hide_secrets_in(Json& value) {
  if (value.is_string()) value = hide_secrets(value.get<std::string>());
  if (!value.is_structured()) return;
  for (Json& inner : value) hide_secrets_in(inner);
}

/// Returns the time as RFC 3339, in UTC, with milliseconds.
std::string time_text() {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm utc = {};
  ::gmtime_r(&now.tv_sec, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     now.tv_nsec / 1'000'000);
}

/// Returns the seconds since `begun`, in whole milliseconds.
double elapsed_since(std::chrono::steady_clock::time_point begun) {
  const auto elapsed = std::chrono::steady_clock::now() - begun;
  const auto whole = std::chrono::duration_cast<std::chrono::milliseconds>(elapsed);
  return static_cast<double>(whole.count()) / 1000;
}

std::string line_of(const char* name, double elapsed, const Json& fields) {
  Json line;
  line["v"] = 1;
  line["event"] = name;
  line["time"] = time_text();
  line["elapsed_s"] = elapsed;
  std::vector<std::string> nonfinite;
  for (const auto& [key, value] : fields.items()) {
    line[key] = value;
    drop_nonfinite(key, line[key], nonfinite);
    hide_secrets_in(line[key]);
  }
  if (!nonfinite.empty()) line["nonfinite"] = nonfinite;
  return json_text(line) + "\n";
}

/// Returns the end of the last complete line: a full disk or a crash may have left a partial line
/// after it.
std::int64_t end_of_whole_lines(int file, std::int64_t end) {
  char last = '\n';
  while (end > 0 && ::pread(file, &last, 1, end - 1) == 1 && last != '\n') --end;
  return end;
}

/// Reads a file line by line, because a log may be larger than memory.
class LineReader {
 public:
  explicit LineReader(HeldPath path, std::uint64_t begin = 0)
      : path_(std::move(path)), next_(begin), file_(open_regular_file(path_, size_)) {}

  /// Reads the next line, including its newline. Returns false at the end, and at an incomplete
  /// last line, which RunLog drops.
  bool next(std::string& line) {
    line.clear();
    while (true) {
      const std::size_t end = block_.find('\n', at_);
      const std::size_t stop = end == std::string::npos ? block_.size() : end + 1;
      line.append(block_, at_, stop - at_);
      at_ = stop;
      if (end != std::string::npos) break;
      if (next_ >= size_) return false;
      block_.resize(std::min<std::uint64_t>(kBlock, size_ - next_));
      read_exactly(file_, path_.text(), next_, std::as_writable_bytes(std::span(block_)));
      next_ += block_.size();
      at_ = 0;
    }
    return true;
  }

 private:
  HeldPath path_;
  std::uint64_t size_ = 0, next_;
  FileHandle file_;
  std::string block_;
  std::size_t at_ = 0;
};

/// A file that is replaced atomically and written in blocks.
class Rewriting {
 public:
  explicit Rewriting(const HeldPath& path) : file_(path) {}
  void write(const std::string& text) {
    block_ += text;
    if (block_.size() >= kBlock) flush();
  }
  /// Appends the first `bytes` of another file, or of the one that is being replaced.
  void copy(const HeldPath& path, std::uint64_t bytes) {
    std::uint64_t size = 0;
    const FileHandle from = open_regular_file(path, size);
    std::string part;
    for (std::uint64_t at = 0; at < bytes; at += part.size()) {
      part.resize(std::min<std::uint64_t>(kBlock, bytes - at));
      read_exactly(from, path.text(), at, std::as_writable_bytes(std::span(part)));
      write(part);
    }
  }
  void commit() {
    flush();
    file_.commit();
  }

 private:
  void flush() {
    file_.write(std::as_bytes(std::span(block_)));
    block_.clear();
  }
  AtomicFile file_;
  std::string block_;
};

/// State of a log line for a run that continues from a given step, after given numbers of completed
/// epochs and rollbacks.
struct LineState {
  bool moves = false;    ///< the line moves, because it will be repeated
  bool is_test = false;  ///< test result of that step: it moves too, unless its process ended
  bool is_end = false;   ///< end of a process that did not fail and has written all its results
};

/// Decides the states of lines. REQUIRES: `of` is called for every line of the log, in order.
class LineRules {
 public:
  LineRules(std::int64_t step, std::int64_t epoch, std::int64_t rollbacks)
      : step_(step), epoch_(epoch), rollbacks_(rollbacks) {}

  LineState of(const std::string& line) {
    // Lines of other programs may hold any text.
    const Json json = Json::parse(line, nullptr, false);
    const auto number = [&](const char* key) {
      const auto found = json.is_object() ? json.find(key) : json.end();
      return found != json.end() && found->is_number_integer() ? found->get<std::int64_t>() : -1;
    };
    const auto text = [&](const char* key) {
      const auto found = json.is_object() ? json.find(key) : json.end();
      return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    const std::string event = text("event");
    const std::int64_t step = number("step");
    LineState state;
    state.moves = step > step_;
    state.is_end = event == "run_end" && text("status") != "failed";
    if (event == "run_start") {
      in_moved_process_ = state.moves;
    } else if (event == "epoch" || event == "eval" || event == "lr_reduced") {
      state.moves = state.moves || number("epoch") > epoch_;
      state.is_test = !state.moves && event == "eval" && step == step_ && text("split") == "test";
    } else if (event == "rollback") {
      // A rollback event has the step to which the run went back. If a process was killed before it
      // had saved a later step, the next process rolls back again and repeats the event.
      state.moves = state.moves || number("rollbacks") > rollbacks_;
    } else if (step < 0) {
      state.moves = in_moved_process_;
    }
    return state;
  }

 private:
  std::int64_t step_, epoch_, rollbacks_;
  bool in_moved_process_ = false;
};

/// The lines of a log that move.
struct MovedLines {
  std::int64_t count = 0;
  std::uint64_t bytes = 0;
  std::uint64_t first = 0;     ///< start of the first line that moves
  std::uint64_t last_end = 0;  ///< start of the last line that reports an end
  void add(std::uint64_t at, const std::string& line) {
    if (count++ == 0) first = at;
    bytes += line.size();
  }
};

MovedLines find_moved(const HeldPath& path, LineRules rules) {
  MovedLines sure, tests;
  std::uint64_t at = 0, last_end = 0;
  LineReader lines(path);
  for (std::string line; lines.next(line); at += line.size()) {
    const LineState state = rules.of(line);
    if (state.is_end) {
      // A process that ended has logged its test result. If it was killed before its end, the next
      // process logs the result again.
      last_end = at;
      tests = {};
    }
    if (state.moves) sure.add(at, line);
    if (state.is_test) tests.add(at, line);
  }
  const bool both = sure.count > 0 && tests.count > 0;
  MovedLines all;
  all.count = sure.count + tests.count;
  all.bytes = sure.bytes + tests.bytes;
  all.first = both ? std::min(sure.first, tests.first) : sure.first + tests.first;
  all.last_end = last_end;
  return all;
}

/// Calls `visit(line, moves)` for each line, starting with the first that moves, until `visit`
/// returns false. `moves` is true if the line moves. Earlier lines need not be passed to `rules`,
/// because they do not change its state.
void visit_lines(const HeldPath& path, const MovedLines& moved, LineRules rules,
                 const std::function<bool(const std::string&, bool)>& visit) {
  std::uint64_t at = moved.first;
  LineReader lines(path, at);
  for (std::string line; lines.next(line); at += line.size()) {
    const LineState state = rules.of(line);
    if (!visit(line, state.moves || (state.is_test && at >= moved.last_end))) return;
  }
}

/// Returns true if `other` contains, from `begin` to its end, exactly the lines that move.
bool has_moved(const HeldPath& other, std::uint64_t begin, const HeldPath& path,
               const MovedLines& moved, const LineRules& rules) {
  bool same = true;
  LineReader there(other, begin);
  std::string found;
  visit_lines(path, moved, rules, [&](const std::string& line, bool moves) {
    same = !moves || (there.next(found) && found == line);
    return same;
  });
  return same;
}

}  // namespace

std::string why_no_log(const HeldPath& path) {
  struct stat status {};
  const bool is_there = ::fstatat(path.at(), path.name(), &status, 0) == 0;
  if (!is_there || S_ISREG(status.st_mode) || S_ISCHR(status.st_mode)) return {};
  return fmt::format("expected a file, found {}",
                     S_ISDIR(status.st_mode) ? "a folder" : "a device, pipe or socket");
}

RunLog::RunLog(HeldPath path, Warn warn) : path_(std::move(path)), warn_(std::move(warn)) {
  append({});
}

/// Returns 0 or the errno of the failure, as append does.
int RunLog::open() {
  if (!why_no_log(*path_).empty()) return EINVAL;
  FileHandle file = open_file(*path_, O_RDWR | O_CREAT | O_APPEND, 0666);
  struct stat status {};
  if (!file.is_open() || ::fstat(file.fd(), &status) != 0) return errno;
  whole_ = end_of_whole_lines(file.fd(), status.st_size);
  is_whole_ = whole_ == status.st_size;
  file_ = std::move(file);
  return 0;
}

int RunLog::append(const std::string& text) {
  if (!file_.is_open()) {
    if (const int error = open(); error != 0) return error;
  }
  if (!is_whole_ && ::ftruncate(file_.fd(), whole_) != 0) return errno;
  is_whole_ = true;
  const int error = write_all(file_.fd(), std::as_bytes(std::span(text)));
  if (error == 0) {
    whole_ += static_cast<std::int64_t>(text.size());
  } else {
    is_whole_ = ::ftruncate(file_.fd(), whole_) == 0;
  }
  return error;
}

void RunLog::event(const char* name, const Json& fields) {
  if (!path_) return;
  write_event(name, fields);
  for (const Follower& follower : followers_) follower(name, fields);
}

void RunLog::write_event(const char* name, const Json& fields) {
  int error = 0;
  const double elapsed = elapsed_since(begun_);
  if (lost_ > 0) {
    error = append(line_of("log_gap", elapsed, {{"lines", lost_}}));
    if (error == 0) lost_ = 0;
  }
  if (error == 0) error = append(line_of(name, elapsed, fields));
  if (error == 0) return;
  ++lost_;
  if (warn_ && !std::exchange(warned_, true)) {
    const std::string why = why_no_log(*path_);
    warn_(fmt::format("{}: cannot write: {}; the run continues, but lines of its log are missing",
                      path_->text(), why.empty() ? std::generic_category().message(error) : why));
  }
}

void read_log_lines(const HeldPath& path, const std::function<void(const std::string&)>& visit) {
  LineReader lines(path);
  for (std::string line; lines.next(line);) visit(line);
}

std::map<std::int64_t, std::string> lines_of_checkpoints(const HeldPath& log) {
  std::map<std::int64_t, std::string> lines;
  if (entry_type(log) != EntryType::file) return lines;
  read_log_lines(log, [&](const std::string& line) {
    // Parse only candidates, because most lines are about steps.
    if (line.find("\"event\":\"checkpoint\"") == std::string::npos) return;
    const Json event = Json::parse(line, nullptr, false);
    if (!event.is_object() || !event.contains("path") || !event["path"].is_string()) return;
    const std::string path = event["path"].get<std::string>();
    constexpr std::string_view kFolder = "checkpoints/";
    if (!path.starts_with(kFolder)) return;
    const std::int64_t step = step_of_checkpoint(std::string_view(path).substr(kFolder.size()));
    if (step >= 0) lines[step] = line;
  });
  return lines;
}

std::int64_t abandon_log_lines(const HeldPath& folder, std::int64_t step, std::int64_t epoch,
                               std::int64_t rollbacks) {
  const HeldPath path = folder / "metrics.jsonl";
  const HeldPath abandoned_path = folder / "metrics.abandoned.jsonl";
  if (entry_type(path) == EntryType::none) return 0;
  const LineRules rules(step, epoch, rollbacks);
  const MovedLines moved = find_moved(path, rules);
  if (moved.count == 0) return 0;

  // Write the lines to their destination before removing them: a crash in between leaves them in
  // both files, and the next call does not append them again.
  std::uint64_t before = 0;
  if (entry_type(abandoned_path) != EntryType::none) open_regular_file(abandoned_path, before);
  if (before < moved.bytes ||
      !has_moved(abandoned_path, before - moved.bytes, path, moved, rules)) {
    Rewriting abandoned(abandoned_path);
    if (before > 0) abandoned.copy(abandoned_path, before);
    visit_lines(path, moved, rules, [&](const std::string& line, bool moves) {
      if (moves) abandoned.write(line);
      return true;
    });
    abandoned.commit();
  }
  Rewriting kept(path);
  kept.copy(path, moved.first);
  visit_lines(path, moved, rules, [&](const std::string& line, bool moves) {
    if (!moves) kept.write(line);
    return true;
  });
  kept.commit();
  return moved.count;
}

RestoredLines restore_log_lines(const HeldPath& folder, const HeldPath& branch_log,
                                std::int64_t step, std::int64_t epoch, std::int64_t rollbacks) {
  const HeldPath path = folder / "metrics.jsonl";
  const HeldPath abandoned_path = folder / "metrics.abandoned.jsonl";
  const LineRules rules(step, epoch, rollbacks);
  const auto each_of_branch = [&](const std::function<void(const std::string&)>& visit) {
    MovedLines moved = find_moved(branch_log, rules);
    moved.first = 0;
    visit_lines(branch_log, moved, rules, [&](const std::string& line, bool moves) {
      if (!moves) visit(line);
      return true;
    });
  };
  // Counts how often each line of the new log still has to be found in the existing files.
  std::unordered_map<std::size_t, std::int64_t> expected;
  const std::hash<std::string> hash;
  RestoredLines result;
  each_of_branch([&](const std::string& line) {
    ++expected[hash(line)];
    ++result.restored;
  });
  const auto is_expected = [&](const std::string& line) {
    const auto found = expected.find(hash(line));
    return found != expected.end() && found->second-- > 0;
  };

  // Look for the lines of the new log in the present one first: those found there stay, and do not
  // count as restored.
  std::vector<bool> leaves;  // one entry per line of the log
  if (entry_type(path) != EntryType::none) {
    LineReader lines(path);
    for (std::string line; lines.next(line);) leaves.push_back(!is_expected(line));
  }
  Rewriting abandoned(abandoned_path);
  if (entry_type(abandoned_path) != EntryType::none) {
    LineReader lines(abandoned_path);
    for (std::string line; lines.next(line);) {
      if (!is_expected(line)) abandoned.write(line);
    }
  }
  if (!leaves.empty()) {
    LineReader lines(path);
    auto each_leaves = leaves.begin();
    for (std::string line; each_leaves != leaves.end() && lines.next(line); ++each_leaves) {
      if (*each_leaves) abandoned.write(line);
    }
    result.abandoned = std::count(leaves.begin(), leaves.end(), true);
    result.restored -= std::count(leaves.begin(), leaves.end(), false);
  }
  abandoned.commit();
  Rewriting kept(path);
  each_of_branch([&](const std::string& line) { kept.write(line); });
  kept.commit();
  return result;
}

}  // namespace dpt
