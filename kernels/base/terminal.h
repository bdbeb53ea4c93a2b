// Columns and colours of terminals, and the width of text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dpt {

/// Returns true if the descriptor is a terminal whose lines can be redrawn (TERM is not "dumb").
bool can_redraw(int descriptor);
/// Returns true if text on the descriptor may have colours. NO_COLOR must not be set, and either
/// can_redraw is true or CLICOLOR_FORCE is set to a value other than 0.
bool has_colours(int descriptor);
/// Returns the number of columns of the terminal, or 80 if the descriptor is not a terminal.
std::size_t terminal_columns(int descriptor);

enum class TextColour : std::uint8_t { red, yellow, green, bold };

/// Returns `text` in the colour, or unchanged if not `enabled`.
std::string coloured(std::string_view text, TextColour colour, bool enabled);

/// Returns a message with its first word coloured for stderr: "error:" red, "warning:" yellow.
std::string with_coloured_kind(const std::string& message);

/// Returns the width of UTF-8 text in columns: two for CJK and emoji, zero for combining marks, one
/// for an invalid byte.
std::size_t display_columns(std::string_view text);
/// Returns the longest beginning of `text` that fits into `columns`. Never splits a character.
std::string_view first_columns(std::string_view text, std::size_t columns);
/// Returns `text` padded with blanks to `columns`.
std::string padded(std::string_view text, std::size_t columns);

/// Returns `name` between U+2068 and U+2069 if it has right-to-left letters, so that they do not
/// reorder the text around the name.
std::string isolated(std::string_view name);

/// Returns the lines of `text`, broken at blanks so that each takes up to `columns`. A word that is
/// wider gets its own line.
std::vector<std::string> wrapped(std::string_view text, std::size_t columns);

}  // namespace dpt
