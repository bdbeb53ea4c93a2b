// Building blocks of a page in HTML. Text from files of the user's goes through html_text
// (app/base/markup_text.h), so that it cannot become a part of the page.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dpt {

/// Returns a name, such as a class name, in its own <bdi> element. A long name is shortened in the
/// middle, and a tooltip shows all of it.
std::string html_name(const std::string& name);

/// Returns a path, each of whose names is isolated from the text direction of the others.
std::string html_path(const std::string& path);

/// JSON as the content of a <script> of type application/json.
std::string json_for_script(const std::string& json);

std::string base64(std::span<const std::byte> bytes);

/// The template with its {{NAME}} replaced by values, in which nothing is replaced. REQUIRES: there
/// is a value for each name.
std::string filled(std::string_view text,
                   const std::vector<std::pair<std::string_view, std::string_view>>& values);

/// A table in a box of its own, which scrolls where the page is narrower. `first` is the heading of
/// each row. Cells are HTML.
struct HtmlTable {
  std::string label;  ///< for those who do not see it
  std::string style;  ///< classes
  std::vector<std::string> heading;
  std::vector<std::vector<std::string>> rows;

  std::string text() const;
};

}  // namespace dpt
