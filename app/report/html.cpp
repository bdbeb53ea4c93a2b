#include "app/report/html.h"

#include <fmt/format.h>

#include <cassert>

#include "app/base/markup_text.h"
#include "kernels/base/utf8_text.h"

namespace dpt {

std::string html_name(const std::string& name) {
  constexpr std::size_t kMax = 44, kBeginning = 30, kEnd = 10;  // characters
  const std::string text = utf8_text(name);
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80) begins.push_back(i);
  }
  // Use <bdi>, because a right-to-left name must not reorder the text around it.
  if (begins.size() <= kMax) return "<bdi>" + html_text(text) + "</bdi>";
  return fmt::format("<bdi title=\"{}\">{}&#8230;{}</bdi>", html_text(text),
                     html_text(text.substr(0, begins[kBeginning])),
                     html_text(text.substr(begins[begins.size() - kEnd])));
}

std::string html_path(const std::string& path) {
  std::string out;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = path.find('/', begin);
    const std::string name = path.substr(begin, end - begin);
    if (!name.empty()) out += "<bdi>" + html_text(name) + "</bdi>";
    if (end == std::string::npos) return out;
    out += '/';
    begin = end + 1;
  }
}

std::string json_for_script(const std::string& json) {
  // In JSON, a '<' can only be in a string, where it may be escaped.
  std::string out;
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

std::string base64(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < left ? std::to_integer<std::uint32_t>(bytes[i + k]) : 0);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += k <= left ? kDigits[bits >> (18 - 6 * k) & 63U] : '=';
    }
  }
  return out;
}

std::string filled(std::string_view text,
                   const std::vector<std::pair<std::string_view, std::string_view>>& values) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = text.find("{{", at);
    if (begin == std::string_view::npos) {
      out += text.substr(at);
      break;
    }
    out += text.substr(at, begin - at);
    const std::size_t end = text.find("}}", begin);
    assert(end != std::string_view::npos);
    const std::string_view name = text.substr(begin + 2, end - begin - 2);
    [[maybe_unused]] bool is_known = false;
    for (const auto& [each, value] : values) {
      if (each != name) continue;
      out += value;
      is_known = true;
    }
    assert(is_known);
    at = end + 2;
  }
  return out;
}

std::string HtmlTable::text() const {
  std::string out = fmt::format(
      "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\"><table class=\"{}\">",
      label, style);
  if (!heading.empty()) {
    out += "<thead><tr>";
    for (const std::string& cell : heading) out += "<th scope=\"col\">" + cell + "</th>";
    out += "</tr></thead>\n";
  }
  out += "<tbody>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += i == 0 ? "<th scope=\"row\">" + row[i] + "</th>" : "<td>" + row[i] + "</td>";
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace dpt
