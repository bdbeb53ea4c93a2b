#include "app/base/markup_text.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

#include "kernels/base/utf8_text.h"

namespace dpt {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";  ///< U+FFFD

/// Escapes the characters that HTML and XML escape in the same way. `rest` escapes the others:
/// control characters and apostrophes.
std::string markup_text(const std::string& text, std::string (*rest)(char)) {
  constexpr std::string_view kLetters = "&<>\"";
  constexpr std::array kEntities = {"&amp;", "&lt;", "&gt;", "&quot;"};
  std::string out;
  for (const char c : utf8_text(text)) {
    const std::size_t letter = kLetters.find(c);
    const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (letter != std::string_view::npos) {
      out += kEntities[letter];
    } else if (is_control || c == '\'') {
      out += rest(c);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string html_text(const std::string& text) {
  return markup_text(text, [](char c) {
    if (c == '\'') return std::string("&#39;");
    return c == '\n' || c == '\t' ? std::string(1, c) : fmt::format("\\x{:02x}", c);
  });
}

std::string xml_text(const std::string& text) {
  std::string out = markup_text(text, [](char c) {
    if (c == '\'' || c == 0x7f) return std::string(1, c);
    // Parsers turn an unescaped line end or tab in an attribute into a space.
    const bool is_space = c == '\n' || c == '\t' || c == '\r';
    return is_space ? fmt::format("&#{};", static_cast<int>(c)) : std::string(kReplacement);
  });
  for (const char* absent : {"\xEF\xBF\xBE", "\xEF\xBF\xBF"}) {  // U+FFFE, U+FFFF
    for (std::size_t at = 0; (at = out.find(absent, at)) != std::string::npos;) {
      out.replace(at, 3, kReplacement);
    }
  }
  return out;
}

}  // namespace dpt
