// Building blocks of an HTML page. Text from the user's files must go through html_text
// (app/base/markup_text.h), so that it cannot become markup.
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

/// Returns a path in which the text direction of each name is isolated from the others.
std::string html_path(const std::string& path);

/// Escapes JSON for a <script> of type application/json.
std::string json_for_script(const std::string& json);

std::string base64(std::span<const std::byte> bytes);

/// Returns the template `text` with each {{NAME}} replaced by its value. Nothing is replaced inside
/// values. REQUIRES: `values` has each name.
std::string filled(std::string_view text,
                   const std::vector<std::pair<std::string_view, std::string_view>>& values);

/// A table in its own box, which scrolls if the page is narrower. The first cell of each row is its
/// heading. Cells are HTML.
struct HtmlTable {
  std::string label;  ///< description for screen readers
  std::string style;  ///< classes
  std::vector<std::string> heading;
  std::vector<std::vector<std::string>> rows;

  std::string text() const;
};

}  // namespace dpt
