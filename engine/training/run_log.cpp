#include "engine/training/run_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/error.h"
#include "kernels/json_text.h"

namespace dpt {
namespace {

std::string line_of(const char* name, const Json& fields) {
  Json line;
  line["v"] = 1;
  line["event"] = name;
  std::vector<std::string> nonfinite;
  for (const auto& [key, value] : fields.items()) {
    if (value.is_number_float() && !std::isfinite(value.get<double>())) {
      nonfinite.push_back(key);
      line[key] = nullptr;
    } else {
      line[key] = value;
    }
  }
  if (!nonfinite.empty()) line["nonfinite"] = nonfinite;
  return json_text(line) + "\n";
}

/// Where the last whole line ends: a full disk or a crash may have left half a line.
std::int64_t end_of_whole_lines(int file, std::int64_t end) {
  char last = '\n';
  while (end > 0 && ::pread(file, &last, 1, end - 1) == 1 && last != '\n') --end;
  return end;
}

}  // namespace

RunLog::RunLog(std::string path, Warn warn) : path_(std::move(path)), warn_(std::move(warn)) {
  if (!path_.empty()) append({});
}

/// Returns 0 or the errno of the failure, as append does.
int RunLog::open() {
  FileHandle file = open_file(path_, O_RDWR | O_CREAT | O_APPEND, 0666);
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
  if (path_.empty()) return;
  int error = 0;
  if (lost_ > 0) {
    error = append(line_of("log_gap", {{"lines", lost_}}));
    if (error == 0) lost_ = 0;
  }
  if (error == 0) error = append(line_of(name, fields));
  if (error == 0) return;
  ++lost_;
  if (warn_ && !std::exchange(warned_, true)) {
    warn_(fmt::format("{}: cannot write: {}; the run continues; lines of its log are missing",
                      path_, std::generic_category().message(error)));
  }
}

std::int64_t abandon_log_lines(const std::string& folder, std::int64_t step, std::int64_t epoch) {
  const std::string path = folder + "/metrics.jsonl";
  const std::string abandoned_path = folder + "/metrics.abandoned.jsonl";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return 0;
  const std::string text = read_whole_file(path);

  struct Line {
    std::string text;
    Json json;
  };
  std::vector<Line> lines;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    if (end == std::string::npos) break;  // half a line: RunLog drops it
    Line line{text.substr(begin, end - begin + 1), {}};
    line.json = Json::parse(line.text, nullptr, false);
    lines.push_back(std::move(line));
  }
  // Lines of other programs may hold anything.
  const auto text_of = [](const Json& json, const char* key) {
    const auto found = json.is_object() ? json.find(key) : json.end();
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto event_of = [&](const Json& json) { return text_of(json, "event"); };
  // A process that ended has logged its test result; one that was killed logs it again.
  std::size_t last_end = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (event_of(lines[i].json) == "run_end") last_end = i;
  }

  std::string kept, moved;
  std::int64_t count = 0;
  bool in_moved_process = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Json& json = lines[i].json;
    const std::string event = event_of(json);
    const auto number = [&](const char* key) {
      const auto found = json.is_object() ? json.find(key) : json.end();
      return found != json.end() && found->is_number_integer() ? found->get<std::int64_t>() : -1;
    };
    bool moves = number("step") > step;
    if (event == "run_start") {
      in_moved_process = moves;
    } else if (event == "epoch" || event == "eval") {
      moves = moves || number("epoch") > epoch;
      if (event == "eval" && text_of(json, "split") == "test") {
        moves = moves || (number("step") == step && i > last_end);
      }
    } else if (number("step") < 0) {
      moves = in_moved_process;
    }
    (moves ? moved : kept) += lines[i].text;
    count += moves ? 1 : 0;
  }
  if (count == 0) return 0;

  // First where they go, then where they were: a crash between the two leaves them in both, and the
  // next time they are not appended again.
  std::string abandoned;
  if (std::filesystem::exists(abandoned_path, ignored)) {
    abandoned = read_whole_file(abandoned_path);
  }
  const bool is_there =
      abandoned.size() >= moved.size() &&
      abandoned.compare(abandoned.size() - moved.size(), moved.size(), moved) == 0;
  if (!is_there) write_file_atomically(abandoned_path, abandoned + moved);
  write_file_atomically(path, kept);
  return count;
}

}  // namespace dpt
