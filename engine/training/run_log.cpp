#include "engine/training/run_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/error.h"
#include "kernels/json_text.h"

namespace dpt {
namespace {

/// A full disk or a crash may have left half a line at the end; readers want whole ones.
void drop_partial_line(int file) {
  off_t end = ::lseek(file, 0, SEEK_END);
  char last = '\n';
  while (end > 0 && ::pread(file, &last, 1, end - 1) == 1 && last != '\n') --end;
  if (::ftruncate(file, end) != 0) {
    fail(ErrorKind::data, "cannot repair the log's last line: {}", std::strerror(errno));
  }
}

}  // namespace

RunLog::RunLog(const std::string& path) : path_(path) {
  if (path.empty()) return;
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) fail(ErrorKind::data, "cannot write the log {}: {}", path, std::strerror(errno));
  drop_partial_line(file_);
}

RunLog::~RunLog() {
  if (file_ >= 0) ::close(file_);
}

void RunLog::event(const char* name, const Json& fields) {
  if (file_ < 0) return;
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
  const std::string text = json_text(line) + "\n";
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(file_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      fail(ErrorKind::data, "cannot write the log {}: {}", path_, std::strerror(errno));
    }
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace dpt
