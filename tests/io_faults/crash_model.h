// The possible content of a disk after a power cut, computed from the calls of a run.
//
// POSIX guarantees little. The bytes of a file are on the disk after an fsync of the file. A name
// that was created, linked, renamed or removed is up to date on the disk after an fsync of its
// folder. Everything else may or may not be on the disk. (kill -9 cannot test an fsync: the page
// cache survives it, so nothing is lost.)
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tests/io_faults/harness.h"

namespace dpt::testing {

class CrashModel {
 public:
  /// Changes that reach the disk although no fsync has made them durable.
  enum class Keeps {
    nothing,  ///< neither names nor bytes
    names     ///< names of files, with the bytes of their last fsync: often none
  };

  /// Starts with a disk that holds everything below `folder`.
  explicit CrashModel(const std::string& folder);

  void apply(const IoCall& call, const std::string& data);

  /// Returns the remaining files, by absolute path.
  std::map<std::string, std::string> after_crash(Keeps keeps) const;

 private:
  /// A file or a folder. A folder that is moved takes its durable content along.
  struct Node {
    bool is_folder = false;
    std::string bytes, durable;                              // of a file
    std::map<std::string, std::shared_ptr<Node>> now, disk;  // of a folder
  };
  using NodePtr = std::shared_ptr<Node>;

  /// Returns the folder that contains `path` now; null if `path` is not below the watched folder.
  Node* parent(const std::string& path) const;
  NodePtr find(const std::string& path) const;

  std::string folder_;
  NodePtr root_;
};

}  // namespace dpt::testing
