// The folder of downloaded files (download.h): names, locks and atomic writes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/base/sha256.h"

namespace dpt {

/// Record of a downloaded file.
struct FileRecord {
  std::string name, url, etag, sha256, file_name;
  std::uint64_t size = 0;
};

/// Reads a record. Returns nothing if it is missing or damaged.
std::optional<FileRecord> read_record(const std::string& path);
/// Writes a record atomically. Throws ErrorKind::data.
void write_record(const std::string& path, const FileRecord& record);

/// Creates a folder and its parents. Throws ErrorKind::data.
void make_cache_folder(const std::string& path);

/// Renames a file, durably. Throws ErrorKind::data.
void move_into_place(const std::string& from, const std::string& to);

/// Lock on a file of the folder, held for the lifetime of the object.
class CacheLock {
 public:
  /// Waits for the lock. Calls `note` once if another process holds it. If the folder is not
  /// writable, holds no lock: is_held() returns false, and problem() returns the system's reason.
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

/// An unfinished download, with the hash of its bytes so far.
class PartFile {
 public:
  /// Opens or creates the file. Empties it unless `keeps`. Throws ErrorKind::data.
  PartFile(const std::string& path, bool keeps);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  std::uint64_t size() const { return size_; }
  void add(std::string_view bytes);
  void clear();
  /// Syncs the file and returns its SHA-256 in hexadecimal. Must be the last call.
  std::string finish();

 private:
  [[noreturn]] void fail_at(const char* doing) const;

  std::string path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  Sha256 hash_;
};

}  // namespace dpt
