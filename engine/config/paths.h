// Paths in configs and on command lines: ${VAR:-default}, ~/, and the base of relative paths.
#pragma once

#include <string>
#include <string_view>

namespace dpt {

/// A path with its variables replaced, or the reason why they cannot be replaced.
struct ExpandedPath {
  std::string path;
  std::string problem;    ///< empty = none
  bool is_unset = false;  ///< the problem is a variable that is not set
  /// Text that expands to `path`, with ${NAME} for secret variables; empty if there are none.
  std::string stored;
  std::string defaulted;  ///< first unset variable whose default `path` uses
};

/// Replaces ${NAME} and ${NAME:-default} from the environment, then a leading `~/` by $HOME. The
/// default also stands for an empty variable, and may itself contain variables. `$${` stands for a
/// literal `${`. Any other `$` is literal, but a path that begins with $NAME is a problem if that
/// variable exists. Remembers the values of secret variables (secrets.h). `~NAME/` and URLs are
/// problems; with `takes_url`, files on servers are not (is_remote).
ExpandedPath expand_variables(const std::string& text, bool takes_url = false);

/// Records that a path of a config uses the default of the unset `variable`, for messages about the
/// path. defaulted_variable returns that variable; empty if there is none.
void remember_defaulted(const std::string& path, const std::string& variable);
std::string defaulted_variable(const std::string& path);

/// Returns "; DPT_DATA is not set, ..." for a path that has the default of a variable, else "".
std::string hint_of_default(const std::string& path);

/// Expands a path from a command line, where the shell has already replaced variables. Replaces a
/// leading `~/` by $HOME, because the shell leaves it alone in `--option=~/x`. `~NAME/` and URLs
/// are problems; with `takes_url`, files on servers are not (is_remote).
ExpandedPath expand_home(const std::string& text, bool takes_url = false);

/// Returns true for the name of a file on a server: https://... or hf://...
bool is_remote(std::string_view text);

/// Inverts expand_variables: returns a text that expand_variables turns into `path`.
std::string escape_variables(const std::string& path);

/// Returns true if the text has a `${` that is not written `$${`.
bool has_variable(std::string_view text);

/// Unescapes a value that is not a path. Such values have no variables, so `$${` becomes `${`.
std::string unescape_text(std::string text);

/// Returns true if the config `file` is a stream, such as /dev/stdin, or /dev/fd/63 from a shell's
/// <(...). The name and folder of a stream have no meaning.
bool is_stream(const std::string& file);

/// Returns the folder that relative paths in a config are relative to: the folder of `file`, or
/// empty (the working directory) if `file` is empty or a stream.
std::string folder_of_config(const std::string& file);

/// Returns `path` as an absolute path; a relative one starts at folder_of_config(file). An empty
/// path and the name of a file on a server stay unchanged.
std::string resolve_path(const std::string& path, const std::string& file);

}  // namespace dpt
