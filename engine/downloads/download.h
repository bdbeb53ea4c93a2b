// Files of weights from servers: downloaded once into a folder that all runs share, checked against
// the server's size and SHA-256, resumed after a broken connection, and taken from the folder when
// the server cannot be reached.
//
// The folder holds SHA256/NAME (a file by its content), and for each URL KEY.json (what it led to),
// KEY.part with KEY.part.json (an unfinished download) and KEY.lock, which one process holds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace dpt {

struct DownloadOptions {
  std::string folder;
  std::string sha256;      ///< that the file must have, in hexadecimal; empty = any
  int stall_seconds = 60;  ///< without a byte: an error
  /// Gets lines for the user. Never empty.
  std::function<void(const std::string&)> note;
  /// Gets the number of bytes so far and in all (0 = unknown). Never empty.
  std::function<void(std::uint64_t, std::uint64_t)> progress;
};

/// A file of a server on this machine.
struct DownloadedFile {
  std::string path;
  std::string url;     ///< that it came from, with the commit where the hub named one
  std::string sha256;  ///< in hexadecimal
};

/// Returns $XDG_CACHE_HOME/dpt/weights, or the same in ~/.cache. Throws ErrorKind::data if neither
/// variable is set.
std::string weights_folder();

/// Returns the file of a name that remote_file_of reads, after downloading it if necessary. Throws
/// ErrorKind::usage for a wrong name, ErrorKind::data if the file cannot be had; StopRequested as
/// check_stop does. Other processes that want the same file wait for this one.
DownloadedFile download(const std::string& name, const DownloadOptions& options);

/// Returns the SHA-256 of a file on this machine, in hexadecimal. Throws ErrorKind::data.
std::string sha256_of_file(const std::string& path);

}  // namespace dpt
