#include "engine/config/scalars.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include <fmt/ranges.h>

namespace dpt {
namespace {

/// Form of a plain scalar.
enum class ScalarForm : std::uint8_t {
  word,
  boolean,        ///< true, false
  other_boolean,  ///< yes, On, TRUE: a boolean for some YAML readers
  integer,
  number,
  leading_zero,  ///< 010: octal for some YAML readers
  other_number,  ///< 0x1F, 1_000: a number for some YAML readers
  non_finite     ///< .inf, nan
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Returns the number of digits from `from` on.
std::size_t digits(std::string_view text, std::size_t from) {
  std::size_t n = 0;
  while (from + n < text.size() && is_digit(text[from + n])) ++n;
  return n;
}

ScalarForm form_of_number(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (text.empty()) return ScalarForm::word;
  const std::string folded = lower_case(std::string(text));
  if (folded == ".inf" || folded == ".nan" || folded == "inf" || folded == "nan" ||
      folded == "infinity") {
    return ScalarForm::non_finite;
  }
  const std::size_t whole = digits(text, 0);
  std::size_t at = whole;
  std::size_t fraction = 0;
  bool is_whole = true;
  if (at < text.size() && text[at] == '.') {
    is_whole = false;
    fraction = digits(text, at + 1);
    at += 1 + fraction;
  }
  if (whole + fraction > 0 && at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    std::size_t exponent = at + 1;
    if (exponent < text.size() && (text[exponent] == '-' || text[exponent] == '+')) ++exponent;
    const std::size_t n = digits(text, exponent);
    if (n > 0) {
      is_whole = false;
      at = exponent + n;
    }
  }
  if (whole + fraction > 0 && at == text.size()) {
    if (whole > 1 && text[0] == '0') return ScalarForm::leading_zero;
    return is_whole ? ScalarForm::integer : ScalarForm::number;
  }
  const bool has_prefix = text.size() > 2 && text[0] == '0' &&
                          std::string_view("xXoObB").find(text[1]) != std::string_view::npos;
  const char* allowed = has_prefix ? "0123456789abcdefABCDEF_xXoO" : "0123456789_";
  const bool is_other = is_digit(text[0]) && text.find_first_not_of(allowed) == text.npos;
  return is_other ? ScalarForm::other_number : ScalarForm::word;
}

ScalarForm form_of(const YamlNode& node) {
  if (!node.is_plain) return ScalarForm::word;
  if (node.text == "true" || node.text == "false") return ScalarForm::boolean;
  static constexpr std::array kOthers = {"true", "false", "yes", "no", "on", "off", "y", "n"};
  const std::string folded = lower_case(node.text);
  if (std::find(kOthers.begin(), kOthers.end(), folded) != kOthers.end()) {
    return ScalarForm::other_boolean;
  }
  return form_of_number(node.text);
}

bool means_true(const std::string& text) {
  const std::string folded = lower_case(text);
  return folded == "true" || folded == "yes" || folded == "on" || folded == "y";
}

/// Returns true if a quoted text would be accepted without its quotes.
template <class Reader>
bool is_quoted(const YamlNode& node, Reader read) {
  if (node.kind != YamlNode::Kind::scalar || node.is_plain) return false;
  YamlNode plain = node;
  plain.is_plain = true;
  return read(plain).value.has_value();
}

std::string without_zeros(const std::string& text) {
  const std::size_t sign = text[0] == '-' || text[0] == '+' ? 1 : 0;
  std::size_t first = sign;
  while (first + 1 < text.size() && text[first] == '0' && is_digit(text[first + 1])) ++first;
  return (text[0] == '-' ? "-" : "") + text.substr(first);
}

std::optional<double> parse_double(std::string_view text) {
  if (text[0] == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Returns the hint for a malformed integer or number; empty if there is none.
std::string numeric_hint(ScalarForm form, const YamlNode& node) {
  switch (form) {
    case ScalarForm::leading_zero:
      return fmt::format(
          "a leading zero means octal to some YAML readers and is not accepted; write {}",
          without_zeros(node.text));
    case ScalarForm::other_number:
      return "only decimal digits are accepted";
    default:
      return {};
  }
}

}  // namespace

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::string in_quotes(const std::string& text) {
  std::string out = "'";
  std::size_t shown = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c & 0xC0U) != 0x80U && ++shown > 40) {
      out += "...";
      break;
    }
    if (c == '\n') {
      out += "\\n";
    } else if (c < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02X}", c);
    } else {
      out += text[i];
    }
  }
  return out + "'";
}

std::string known_names(const std::vector<std::string>& names) {
  constexpr std::size_t kMaxNames = 20;
  const std::size_t shown = std::min(names.size(), kMaxNames);
  const std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  return shown == names.size() ? text : fmt::format("{}, ... ({} in all)", text, names.size());
}

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return fmt::format("{}", static_cast<std::int64_t>(value));
  }
  return fmt::format("{}", value);
}

std::string found_text(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::list:
      return node.children.empty() ? "an empty list"
                                   : fmt::format("a list of {}", node.children.size());
    case YamlNode::Kind::map:
      return "a mapping";
    case YamlNode::Kind::scalar:
      break;
    default:
      return "nothing";
  }
  switch (form_of(node)) {
    case ScalarForm::integer:
    case ScalarForm::number:
    case ScalarForm::boolean:
      return node.text.size() <= 40 ? node.text : in_quotes(node.text);
    default:
      return node.text.empty() ? "an empty string" : in_quotes(node.text);
  }
}

Scalar<bool> read_boolean(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar) return {};
  switch (form_of(node)) {
    case ScalarForm::boolean:
      return {node.text == "true", {}};
    case ScalarForm::other_boolean:
      return {{}, fmt::format("write {}", means_true(node.text))};
    default:
      if (is_quoted(node, read_boolean)) return {{}, "remove the quotes"};
      return {};
  }
}

Scalar<std::int64_t> read_integer(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar) return {};
  const ScalarForm form = form_of(node);
  if (form == ScalarForm::integer) {
    std::string_view digits_only = node.text;
    if (digits_only[0] == '+') digits_only.remove_prefix(1);
    std::int64_t value = 0;
    const char* end = digits_only.data() + digits_only.size();
    if (std::from_chars(digits_only.data(), end, value).ec != std::errc{}) {
      return {{}, "it does not fit in 64 bits"};
    }
    return {value, {}};
  }
  if (form == ScalarForm::number) {
    const std::optional<double> value = parse_double(node.text);
    if (value && *value == std::floor(*value) && std::abs(*value) < 1e15) {
      return {{}, fmt::format("write {}", number_text(*value))};
    }
  }
  if (is_quoted(node, read_integer)) return {{}, "remove the quotes"};
  return {{}, numeric_hint(form, node)};
}

Scalar<double> read_number(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar) return {};
  const ScalarForm form = form_of(node);
  if (form == ScalarForm::integer || form == ScalarForm::number) {
    const std::optional<double> value = parse_double(node.text);
    if (value) return {value, {}};
    return {{}, "it does not fit in a double"};
  }
  if (form == ScalarForm::non_finite) return {{}, "it must be finite"};
  if (is_quoted(node, read_number)) return {{}, "remove the quotes"};
  return {{}, numeric_hint(form, node)};
}

Scalar<std::string> read_string(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar) return {};
  if (!needs_quotes(node.text) || !node.is_plain) return {node.text, {}};
  return {{}, "put it into quotes to make it a string"};
}

bool needs_quotes(const std::string& text) {
  YamlNode plain;
  plain.kind = YamlNode::Kind::scalar;
  plain.text = text;
  switch (form_of(plain)) {
    case ScalarForm::boolean:
    case ScalarForm::integer:
    case ScalarForm::number:
    case ScalarForm::leading_zero:
    case ScalarForm::other_number:
      return true;
    case ScalarForm::other_boolean:
      return lower_case(text) == "true" || lower_case(text) == "false";
    default:
      // In YAML, inf and nan are words, but .inf and .nan are not.
      return form_of(plain) == ScalarForm::non_finite && text.find('.') != std::string::npos;
  }
}

std::string yaml_string(const std::string& text) {
  static constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
  static const std::vector<std::string> kWords = {"null", "yes", "no", "on", "off", "y", "n", "~"};
  std::string folded = text;
  for (char& c : folded) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  const bool is_plain = !text.empty() && text.find_first_not_of(kPlain) == std::string::npos &&
                        text[0] != '-' && text[0] != '+' && text[0] != '.' && !needs_quotes(text) &&
                        std::find(kWords.begin(), kWords.end(), folded) == kWords.end();
  if (is_plain) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace dpt
