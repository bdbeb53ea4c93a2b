// Terminals: their columns and colours, and how wide a text is on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dpt {

/// Returns true if the descriptor is a terminal whose lines can be redrawn (TERM is not "dumb").
bool can_redraw(int descriptor);
/// Returns true if texts on the descriptor may have colours: NO_COLOR is not set, and either
/// can_redraw or CLICOLOR_FORCE is set to another value than 0.
bool has_colours(int descriptor);
/// Returns the number of columns of the terminal, or 80 if the descriptor is none.
std::size_t terminal_columns(int descriptor);

enum class TextColour : std::uint8_t { red, yellow, green, bold };

/// Returns `text` in the colour, or as it is if not `enabled`.
std::string coloured(std::string_view text, TextColour colour, bool enabled);

/// Returns a message with its first word coloured for stderr: "error:" red, "warning:" yellow.
std::string with_coloured_kind(const std::string& message);

/// Returns the columns that a text in UTF-8 takes: two for CJK and emoji, none for combining marks.
/// A byte that is not UTF-8 takes one.
std::size_t display_columns(std::string_view text);
/// Returns the beginning of `text` that fits into `columns`; never a part of a character.
std::string_view first_columns(std::string_view text, std::size_t columns);
/// Returns `text`, followed by blanks up to `columns`.
std::string padded(std::string_view text, std::size_t columns);

/// Returns `name` between U+2068 and U+2069 if it has letters that are written from right to left:
/// they then do not reorder the text around the name.
std::string isolated(std::string_view name);

/// Returns the lines of `text`, broken at blanks so that each takes up to `columns`. A word that is
/// wider gets a line of its own.
std::vector<std::string> wrapped(std::string_view text, std::size_t columns);

}  // namespace dpt
