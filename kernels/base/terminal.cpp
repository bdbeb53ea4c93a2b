#include "kernels/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "kernels/base/character_widths.h"

namespace dpt {
namespace {

struct Decoded {
  char32_t code = 0;
  std::size_t bytes = 1;
};

/// Returns the first character of `text`, or its first byte if no character begins there. REQUIRES:
/// `text` is not empty.
Decoded decode(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  std::size_t bytes = 1;
  if (lead >= 0xf0 && lead < 0xf8) {
    bytes = 4;
  } else if (lead >= 0xe0 && lead < 0xf0) {
    bytes = 3;
  } else if (lead >= 0xc2 && lead < 0xe0) {
    bytes = 2;
  }
  if (bytes == 1 || bytes > text.size()) return {lead, 1};
  auto code = static_cast<char32_t>(lead & (0xffU >> (bytes + 1)));
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0U) != 0x80U) return {lead, 1};
    code = code << 6 | static_cast<char32_t>(next & 0x3fU);
  }
  return {code, bytes};
}

template <std::size_t Count>
bool is_in(const CharacterRange (&ranges)[Count], char32_t code) {
  const CharacterRange* const found =
      std::lower_bound(std::begin(ranges), std::end(ranges), code,
                       [](const CharacterRange& range, char32_t at) { return range.last < at; });
  return found != std::end(ranges) && found->first <= code;
}

std::size_t columns_of(const Decoded& character) {
  if (character.bytes == 1) return 1;
  if (is_in(kZeroWidthCharacters, character.code)) return 0;
  return is_in(kWideCharacters, character.code) ? 2 : 1;
}

/// Returns true for letters of Hebrew, Arabic and other right-to-left scripts, and for the marks
/// that set this direction.
bool is_right_to_left(char32_t code) {
  return (code >= 0x590 && code <= 0x8ff) || (code >= 0xfb1d && code <= 0xfdff) ||
         (code >= 0xfe70 && code <= 0xfefc) || (code >= 0x10800 && code <= 0x10fff) ||
         (code >= 0x1e800 && code <= 0x1efff) || code == 0x200f || code == 0x202b ||
         code == 0x202e || code == 0x2067;
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value != '\0';
}

}  // namespace

bool can_redraw(int descriptor) {
  const char* terminal = std::getenv("TERM");
  return isatty(descriptor) == 1 && (!terminal || std::string_view(terminal) != "dumb");
}

bool has_colours(int descriptor) {
  if (is_set("NO_COLOR")) return false;
  const char* forced = std::getenv("CLICOLOR_FORCE");
  if (forced && *forced != '\0' && std::string_view(forced) != "0") return true;
  return can_redraw(descriptor);
}

std::size_t terminal_columns(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

std::string coloured(std::string_view text, TextColour colour, bool enabled) {
  if (!enabled || text.empty()) return std::string(text);
  constexpr std::string_view kStarts[] = {"\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[1m"};
  return std::string(kStarts[static_cast<std::size_t>(colour)]) + std::string(text) + "\x1b[0m";
}

std::string with_coloured_kind(const std::string& message) {
  if (!has_colours(STDERR_FILENO)) return message;
  for (const auto& [kind, colour] :
       {std::pair<std::string_view, TextColour>{"error:", TextColour::red},
        {"unexpected failure:", TextColour::red},
        {"warning:", TextColour::yellow}}) {
    if (message.starts_with(kind)) {
      return coloured(kind, colour, true) + message.substr(kind.size());
    }
  }
  return message;
}

std::size_t display_columns(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Decoded character = decode(text);
    columns += columns_of(character);
    text.remove_prefix(character.bytes);
  }
  return columns;
}

std::string_view first_columns(std::string_view text, std::size_t columns) {
  std::size_t bytes = 0, used = 0;
  while (bytes < text.size()) {
    const Decoded character = decode(text.substr(bytes));
    used += columns_of(character);
    if (used > columns) break;
    bytes += character.bytes;
  }
  return text.substr(0, bytes);
}

std::string padded(std::string_view text, std::size_t columns) {
  const std::size_t used = display_columns(text);
  return std::string(text) + std::string(columns > used ? columns - used : 0, ' ');
}

std::string isolated(std::string_view name) {
  for (std::string_view rest = name; !rest.empty();) {
    const Decoded character = decode(rest);
    if (is_right_to_left(character.code)) {
      return "\xe2\x81\xa8" + std::string(name) + "\xe2\x81\xa9";
    }
    rest.remove_prefix(character.bytes);
  }
  return std::string(name);
}

std::vector<std::string> wrapped(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines;
  std::string line;
  std::size_t used = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    const std::size_t wide = display_columns(word);
    if (!line.empty() && used + 1 + wide > columns) {
      lines.push_back(std::move(line));
      line.clear();
    }
    used = line.empty() ? wide : used + 1 + wide;
    if (!line.empty()) line += ' ';
    line += word;
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace dpt
