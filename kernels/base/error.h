// The one exception type of dpt. It is at the bottom of the tree because every part throws it.
//
// User and environment errors throw dpt::Error. A broken invariant of the program itself fails an
// assert. The text says who, what was expected, what was found, where, and what to do. Only app/
// turns an Error into an exit code.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace dpt {

/// Kinds of errors that scripts need to distinguish. The values are the exit codes of `dpt`.
enum class ErrorKind {
  unexpected = 1,  ///< an unforeseen failure
  usage = 2,       ///< command line or config
  data = 3,        ///< data or checkpoint missing, corrupt or incompatible
  device = 4,      ///< device missing, or out of memory
  diverged = 5,    ///< a loss, gradient or weight that is not finite
  peer = 6,        ///< another rank failed or timed out
  requirement = 7  ///< `--require` not met
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

/// Throws an Error of the given kind with a fmt-formatted text.
template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(kind, fmt::format(text, std::forward<Args>(args)...));
}

/// A place in a text file, for error messages. `line` and `column` count from 1; 0 means unknown.
struct Where {
  std::string file;
  int line = 0;
  int column = 0;

  /// Returns "file:line:column", or its known part.
  std::string text() const {
    if (line == 0) return file;
    return fmt::format("{}:{}:{}", file, line, column);
  }
};

}  // namespace dpt
