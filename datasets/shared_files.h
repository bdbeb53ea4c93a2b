// Files that two parts of a data set have in common.
#pragma once

#include <string>
#include <vector>

namespace dpt {

/// The files of a part, and the field of the config that names them: "data.test.file".
struct NamedFiles {
  std::string field;
  /// Paths, or FILE.npz:NAME for an array of an archive.
  std::vector<std::string> paths;
};

/// Throws ErrorKind::usage if a file is in two of the parts, by the same path or another. The first
/// part is the training set's. Files that do not exist are ignored.
void check_no_shared_files(const std::vector<NamedFiles>& parts);

}  // namespace dpt
