// Downloads weights files once into a folder that all runs share. Verifies the server's size and
// SHA-256, resumes after a broken connection, and uses the copy in the folder if the server cannot
// be reached.
//
// The folder holds SHA256/NAME (a complete file). For each URL it also holds KEY.json (a
// FileRecord), KEY.part and KEY.part.json (an unfinished download), and KEY.lock (a lock for one
// process at a time).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace dpt {

struct DownloadOptions {
  std::string folder;
  std::string sha256;      ///< required hash, in hexadecimal; empty = any
  int stall_seconds = 60;  ///< time without a received byte after which a download fails
  /// Receives lines for the user. Never empty.
  std::function<void(const std::string&)> note;
  /// Receives the number of bytes downloaded so far and in total (0 = unknown). Never empty.
  std::function<void(std::uint64_t, std::uint64_t)> progress;
};

/// Local copy of a file on a server.
struct DownloadedFile {
  std::string path;
  std::string url;     ///< source, with the commit if the hub named one
  std::string sha256;  ///< hash of the content, in hexadecimal
};

/// Returns $XDG_CACHE_HOME/dpt/weights, or ~/.cache/dpt/weights. Throws ErrorKind::data if neither
/// XDG_CACHE_HOME nor HOME is an absolute path.
std::string weights_folder();

/// Returns the local copy of the file `name` (see remote_file_of). Downloads it first if necessary.
/// Other processes that need the same file wait. Throws ErrorKind::usage if the name is invalid,
/// ErrorKind::data if the file is not available, and StopRequested like check_stop.
DownloadedFile download(const std::string& name, const DownloadOptions& options);

/// Returns the SHA-256 of a file on this machine, in hexadecimal. Throws ErrorKind::data.
std::string sha256_of_file(const std::string& path);

}  // namespace dpt
