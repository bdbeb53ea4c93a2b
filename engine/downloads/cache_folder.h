// The folder of downloaded files (download.h): names, locks, and files that appear whole.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/sha256.h"

namespace dpt {

/// The facts kept about a downloaded file.
struct FileRecord {
  std::string name, url, etag, sha256, file_name;
  std::uint64_t size = 0;
};

/// Reads a record; nothing if it is missing or damaged.
std::optional<FileRecord> read_record(const std::string& path);
/// Writes a record in one step. Throws ErrorKind::data.
void write_record(const std::string& path, const FileRecord& record);

/// Makes a folder and those above it. Throws ErrorKind::data.
void make_cache_folder(const std::string& path);

/// Renames a file, durably. Throws ErrorKind::data.
void move_into_place(const std::string& from, const std::string& to);

/// Lock of a file of the folder, held while it lives.
class CacheLock {
 public:
  /// Waits for the lock; calls `note` once if another process holds it. If the folder cannot be
  /// written, holds nothing: is_held() is false, and problem() the system's reason.
  CacheLock(const std::string& path, const std::function<void()>& note);
  ~CacheLock();
  CacheLock(const CacheLock&) = delete;
  CacheLock& operator=(const CacheLock&) = delete;
  bool is_held() const { return fd_ >= 0; }
  const std::string& problem() const { return problem_; }

 private:
  int fd_ = -1;
  std::string problem_;
};

/// An unfinished download, with the hash of what it holds.
class PartFile {
 public:
  /// Opens or makes it. With `keeps`, what it holds stays, else it is emptied. Throws
  /// ErrorKind::data.
  PartFile(const std::string& path, bool keeps);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  std::uint64_t size() const { return size_; }
  void add(std::string_view bytes);
  void clear();
  /// Makes it durable and returns its SHA-256 in hexadecimal. Nothing may follow.
  std::string finish();

 private:
  [[noreturn]] void fail_at(const char* doing) const;

  std::string path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  Sha256 hash_;
};

}  // namespace dpt
