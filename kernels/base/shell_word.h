// Words of a POSIX shell (bash, zsh), for suggested commands in messages and files.
#pragma once

#include <string>

namespace dpt {

/// Returns a text as one shell word, in single quotes.
inline std::string shell_quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

/// Returns a text as one shell word, quoted only if necessary.
inline std::string shell_word(const std::string& text) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+@%";
  const bool is_plain = !text.empty() && text.find_first_not_of(kPlain) == std::string::npos;
  return is_plain ? text : shell_quoted(text);
}

}  // namespace dpt
