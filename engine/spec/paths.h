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

/// Whether a config of that name is a stream, such as /dev/stdin or /dev/fd/63 of a shell's <(...):
/// neither its name nor its folder says anything.
bool is_stream(const std::string& file);

/// The folder that relative paths in a config are relative to: that of `file`; empty, which is the
/// working directory, where `file` is empty or a stream.
std::string folder_of_config(const std::string& file);

/// `path` made absolute against folder_of_config(file). An empty path stays empty.
std::string resolve_path(const std::string& path, const std::string& file);

}  // namespace dpt
