// Checks that two parts of a data set have no file in common.
#pragma once

#include <string>
#include <vector>

namespace dpt {

/// Files of a part, and the config field that names them: "data.test.file".
struct NamedFiles {
  std::string field;
  /// Paths, or FILE.npz:NAME for an array of an archive.
  std::vector<std::string> paths;
};

/// Throws ErrorKind::usage if a file is in two of the parts, even under different paths. The first
/// of `parts` is the training set. Files that do not exist are ignored.
void check_no_shared_files(const std::vector<NamedFiles>& parts);

}  // namespace dpt
