// Text for files that must be UTF-8: pages, Markdown, XML.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "kernels/base/json_text.h"

namespace dpt {

/// Returns the text with U+FFFD in place of bytes that are not UTF-8.
inline std::string utf8_text(const std::string& text) {
  return nlohmann::json::parse(json_text(nlohmann::json(text))).get<std::string>();
}

}  // namespace dpt
