// The operations that were checked without a problem, kept in a file of the user's cache folder.
#pragma once

#include <set>
#include <string>

namespace dpt {

/// Names of checked operations, by machine. A machine is the device with everything else that
/// decides which kernels run. Several threads and processes may use one file. If two write at the
/// same time, one may lose its additions; these operations are then checked again.
class CheckCache {
 public:
  /// If the path is empty, nothing is kept.
  explicit CheckCache(std::string path) : path_(std::move(path)) {}

  /// Returns the operations checked on a machine. There are none if the file is missing, unreadable
  /// or of another format.
  std::set<std::string> checked(const std::string& machine) const;
  /// Adds operations. Returns the reason if the file cannot be written, otherwise an empty string.
  std::string add(const std::string& machine, const std::set<std::string>& operations) const;

 private:
  std::string path_;
};

}  // namespace dpt
