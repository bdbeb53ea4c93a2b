#include "app/help/roff_markdown.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/base/terminal.h"

namespace dpt {
namespace {

constexpr std::size_t kMarkdownColumns = 120;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

/// Replaces roff's escapes of single characters by these characters.
std::string unescaped(std::string text) {
  text = replaced(replaced(text, "\\-", "-"), "\\(aq", "'");
  return replaced(replaced(text, "\\&", ""), "\\e", "\\");
}

/// Converts a line of text, in which \fB and \fI begin code that \fR ends.
std::string inline_text(const std::string& line) {
  std::string text;
  std::size_t at = 0;
  while (at < line.size()) {
    const std::size_t begin = std::min(line.find("\\fB", at), line.find("\\fI", at));
    text += markdown_text(unescaped(line.substr(at, begin - at)));
    if (begin == std::string::npos) break;
    const std::size_t end = std::min(line.find("\\fR", begin), line.size());
    text += "`" + unescaped(line.substr(begin + 3, end - begin - 3)) + "`";
    at = end + 3;
  }
  return text;
}

/// Returns the arguments of a request, without quotes.
std::vector<std::string> arguments_of(const std::string& line) {
  std::vector<std::string> words;
  std::size_t at = line.find(' ');
  while (at != std::string::npos && (at = line.find_first_not_of(' ', at)) != std::string::npos) {
    const bool is_quoted = line[at] == '"';
    const std::size_t end = is_quoted ? line.find('"', at + 1) : line.find(' ', at);
    words.push_back(line.substr(at + is_quoted, end - at - is_quoted));
    at = end == std::string::npos ? end : end + is_quoted;
  }
  return words;
}

/// Converts a request that alternates between fonts, such as "BR" or "I". R is plain text.
std::string alternating(const std::string& fonts, const std::string& line) {
  std::string text;
  std::size_t i = 0;
  for (const std::string& word : arguments_of(line)) {
    const bool is_code = fonts[i++ % fonts.size()] != 'R' && word.find("\\f") == std::string::npos;
    const std::string space = fonts.size() == 1 && !text.empty() ? " " : "";
    text += space + (is_code ? "`" + unescaped(word) + "`" : inline_text(word));
  }
  // Join adjacent pieces of code: their fonts only distinguish options from values.
  return replaced(replaced(text, "` `", " "), "``", "");
}

std::string heading(std::string title, int level) {
  for (std::size_t i = 1; i < title.size(); ++i) {
    if (title[i] >= 'A' && title[i] <= 'Z') title[i] += 'a' - 'A';
  }
  return "\n" + std::string(static_cast<std::size_t>(level), '#') + " " + title + "\n\n";
}

/// Builds Markdown from the lines of a fragment.
class RoffReader {
 public:
  explicit RoffReader(int level) : level_(level) {}

  void read(const std::string& line) {
    const std::string request = line.starts_with(".") ? line.substr(1, line.find(' ') - 1) : "";
    if (is_code_ && request != "fi") {
      text_ += unescaped(line) + "\n";
    } else if (request.empty()) {
      add(inline_text(line));
    } else if (line.starts_with(".\\\" page: ")) {
      pages_.push_back(line.substr(10));
    } else if (request == "PP") {
      end_paragraph();
      if (is_item_) text_ += "\n";
      is_item_ = false;
    } else if (request == "TP") {
      end_paragraph();
      is_item_ = is_head_ = true;
    } else if (request == "SH") {
      end_paragraph();
      is_item_ = false;
      text_ += heading(line.substr(4), level_);
    } else if (request == "nf" || request == "fi") {
      end_paragraph();
      is_code_ = request == "nf";
      text_ += is_code_ ? "```\n" : "```\n\n";
    } else if (std::all_of(request.begin(), request.end(),
                           [](char c) { return c == 'B' || c == 'I' || c == 'R'; })) {
      add(alternating(request, line));
    } else {
      fail(ErrorKind::unexpected, "cannot convert the roff line '{}' to Markdown", line);
    }
  }

  std::string text() {
    end_paragraph();
    return std::move(text_);
  }
  const std::vector<std::string>& pages() const { return pages_; }

 private:
  void add(const std::string& text) {
    if (!paragraph_.empty()) paragraph_ += ' ';
    paragraph_ += text;
    if (is_head_) paragraph_ += ":";
    is_head_ = false;
  }

  void end_paragraph() {
    if (paragraph_.empty()) return;
    text_ += is_item_ ? "- " + markdown_lines(paragraph_, "  ").substr(2)
                      : markdown_lines(paragraph_) + "\n";
    paragraph_.clear();
  }

  int level_;
  bool is_code_ = false;  ///< between .nf and .fi
  bool is_item_ = false;  ///< after .TP
  bool is_head_ = false;  ///< at the line after .TP
  std::string text_, paragraph_;
  std::vector<std::string> pages_;
};

}  // namespace

std::string markdown_text(const std::string& text) {
  std::string escaped;
  bool is_code = false;
  for (const char letter : text) {
    if (letter == '`') is_code = !is_code;
    if (!is_code && std::string_view("*<|[]").find(letter) != std::string_view::npos) {
      escaped += '\\';
    }
    escaped += letter;
  }
  return escaped;
}

std::string markdown_lines(const std::string& text, const std::string& indent) {
  std::string lines;
  for (const std::string& line : wrapped(text, kMarkdownColumns - indent.size())) {
    lines += indent + line + "\n";
  }
  return lines;
}

std::string markdown_of_roff(const std::string& roff, int level) {
  RoffReader reader(level);
  std::istringstream lines(roff);
  for (std::string line; std::getline(lines, line);) reader.read(line);
  std::string text = reader.text();
  std::string links;
  for (const std::string& page : reader.pages()) {
    std::string title = page.substr(page.rfind('/') + 1);
    const std::size_t place = title.find('#');
    if (place != std::string::npos) title = replaced(title.substr(place + 1), "-", " ");
    links += fmt::format("{}[{}](../{})", links.empty() ? "More: " : ", ", title, page);
  }
  return text + (links.empty() ? "" : "\n" + links + "\n");
}

}  // namespace dpt
