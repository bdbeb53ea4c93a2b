// Converts the prose of manual pages to Markdown.
#pragma once

#include <string>

namespace dpt {

/// Returns a fragment of docs/man as Markdown: bold and italic words as code, .TP as a list, .nf as
/// a code block, a section (.SH) as a heading of `level`. A comment `.\" page: guide/FILE.md#PLACE`
/// becomes a link to that page of docs. Throws an Error for other requests of roff.
std::string markdown_of_roff(const std::string& roff, int level);

/// Escapes the special characters of Markdown in `text`, except in `code`.
std::string markdown_text(const std::string& text);

/// Returns paragraphs as lines of up to 120 columns.
std::string markdown_lines(const std::string& text, const std::string& indent = "");

}  // namespace dpt
