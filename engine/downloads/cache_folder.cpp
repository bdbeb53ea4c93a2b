#include "engine/downloads/cache_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/json_text.h"
#include "kernels/base/secret.h"
#include "kernels/base/stop_request.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

int open_retrying(const std::string& path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

void sync_path(const std::string& path) {
  const int fd = open_retrying(path, O_RDONLY);
  if (fd < 0) return;
  static_cast<void>(::fsync(fd));
  ::close(fd);
}

}  // namespace

std::optional<FileRecord> read_record(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  const auto json = nlohmann::json::parse(text.str(), nullptr, false);
  if (!json.is_object()) return std::nullopt;
  FileRecord record;
  try {
    record.name = json.at("name");
    record.url = json.at("url");
    record.etag = json.at("etag");
    record.sha256 = json.at("sha256");
    record.file_name = json.at("file");
    record.size = json.at("size");
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
  // Refuse a path that leads outside the folder.
  const bool is_plain = record.sha256.find('/') == std::string::npos &&
                        record.file_name.find('/') == std::string::npos;
  return is_plain ? std::optional(record) : std::nullopt;
}

void write_record(const std::string& path, const FileRecord& record) {
  const nlohmann::ordered_json json = {{"name", record.name},     {"url", record.url},
                                       {"etag", record.etag},     {"size", record.size},
                                       {"sha256", record.sha256}, {"file", record.file_name}};
  const std::string temporary = path + ".tmp";
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out << json_text(json, 2) << "\n";
    out.close();
    if (!out) fail(ErrorKind::data, "{}: cannot write: {}", temporary, std::strerror(errno));
  }
  move_into_place(temporary, path);
}

void make_cache_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    fail(ErrorKind::data,
         "{}: cannot create the folder for downloaded weights: {}. Fix this, or set "
         "XDG_CACHE_HOME to another folder",
         path, error.message());
  }
}

void move_into_place(const std::string& from, const std::string& to) {
  sync_path(from);
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    fail(ErrorKind::data, "cannot rename {} to {}: {}", from, to, std::strerror(errno));
  }
  sync_path(fs::path(to).parent_path().string());
}

CacheLock::CacheLock(const std::string& path, const std::function<void()>& note) {
  fd_ = open_retrying(path, O_RDWR | O_CREAT);
  if (fd_ < 0) {
    problem_ = std::strerror(errno);
    return;
  }
  for (bool has_noted = false; ::flock(fd_, LOCK_EX | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;  // a file system without locks
    if (errno == EWOULDBLOCK && !has_noted) note();
    has_noted = has_noted || errno == EWOULDBLOCK;
    check_stop();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

CacheLock::~CacheLock() {
  if (fd_ >= 0) ::close(fd_);
}

PartFile::PartFile(const std::string& path, bool keeps)
    : path_(path), fd_(open_retrying(path, O_RDWR | O_CREAT | (keeps ? 0 : O_TRUNC))) {
  if (fd_ < 0) fail_at("open");
  std::vector<char> buffer(std::size_t{1} << 20);
  for (;;) {
    const ssize_t count = ::read(fd_, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      ::close(fd_);
      fail_at("read");
    }
    if (count == 0) return;
    hash_.add({buffer.data(), static_cast<std::size_t>(count)});
    size_ += static_cast<std::uint64_t>(count);
  }
}

PartFile::~PartFile() {
  if (fd_ >= 0) ::close(fd_);
}

void PartFile::fail_at(const char* doing) const {
  fail(ErrorKind::data,
       "{}: cannot {} (after {} bytes): {}. {} or set XDG_CACHE_HOME to another folder; the next "
       "start continues the download",
       path_, doing, size_, std::strerror(errno),
       errno == ENOSPC || errno == EDQUOT ? "Free some disk space," : "Fix this,");
}

void PartFile::add(std::string_view bytes) {
  hash_.add(bytes);
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_at("write");
    bytes.remove_prefix(static_cast<std::size_t>(count));
    size_ += static_cast<std::uint64_t>(count);
  }
}

void PartFile::clear() {
  if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) fail_at("empty");
  size_ = 0;
  hash_ = Sha256();
}

std::string PartFile::finish() {
  if (::fsync(fd_) != 0) fail_at("save");
  return hexadecimal(hash_.finish());
}

}  // namespace dpt
