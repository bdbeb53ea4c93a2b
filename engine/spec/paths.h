// Paths in configs and on command lines: ${VAR:-default}, ~/, and the base of relative ones.
#pragma once

#include <string>
#include <string_view>

namespace dpt {

/// A path with its variables replaced, or why that cannot be.
struct ExpandedPath {
  std::string path;
  std::string problem;    ///< empty = fine
  bool is_unset = false;  ///< the problem is a variable that is not set
  /// Text that expands to `path`, with ${NAME} for secret variables; empty if it has none.
  std::string stored;
};

/// Replaces ${NAME} and ${NAME:-default} from the environment (the default also stands for an empty
/// variable, and may contain variables), then a leading `~/` by $HOME. `$${` stands for a literal
/// `${`; any other `$` is itself,
/// but a path that begins with $NAME of a variable is a problem. Remembers the values of secret
/// variables (secrets.h). `~NAME/` and URLs are problems.
ExpandedPath expand_variables(const std::string& text);

/// Expands a path of a command line, where the shell has replaced variables: a leading `~/`, which
/// the shell leaves alone in `--option=~/x`, becomes $HOME. `~NAME/` and URLs are problems.
ExpandedPath expand_home(const std::string& text);

/// Inverts expand_variables: returns text that it turns into `path`.
std::string escape_variables(const std::string& path);

/// True if the text has a `${` that is not written `$${`.
bool has_variable(std::string_view text);

/// Returns the text of a value that is not a path, where variables are not read: `$${` becomes
/// `${`.
std::string unescape_text(std::string text);

/// Returns true if a config of that name is a stream, such as /dev/stdin or /dev/fd/63 of a shell's
/// <(...), whose name and folder have no meaning.
bool is_stream(const std::string& file);

/// Returns the folder that relative paths in a config are relative to: that of `file`, or empty
/// (the working directory) if `file` is empty or a stream.
std::string folder_of_config(const std::string& file);

/// Makes `path` absolute against folder_of_config(file). An empty path stays empty.
std::string resolve_path(const std::string& path, const std::string& file);

}  // namespace dpt
