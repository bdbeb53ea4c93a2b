// JSON as text: the only place that decides how to write bytes that are not UTF-8.
#pragma once

#include <string>

namespace dpt {

/// Any JSON value as text; `indent` as in nlohmann's dump. Names of files and folders are bytes and
/// need not be UTF-8, which JSON requires: invalid bytes become U+FFFD, because a result or message
/// that cannot be written is of no use. (A template, so that this header needs no JSON library.)
template <class Json>
std::string json_text(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace dpt
