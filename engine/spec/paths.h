// Paths in configs: ${VAR:-default}, and what relative ones are relative to.
#pragma once

#include <string>

namespace dpt {

/// A path with its variables replaced, or why that cannot be.
struct ExpandedPath {
  std::string path;
  std::string problem;  ///< empty = fine
};

/// Replaces ${NAME} and ${NAME:-default} from the environment (the default also stands for an empty
/// variable). `$${` stands for a literal `${`; any other `$` is itself.
ExpandedPath expand_variables(const std::string& text);

/// The opposite for a finished path: text that expand_variables turns into `path`.
std::string escape_variables(const std::string& path);

/// `path` made absolute against the folder of `file`; with `file` empty, against the working
/// directory. An empty path stays empty.
std::string resolve_path(const std::string& path, const std::string& file);

}  // namespace dpt
