// JSON as text: the one place that decides what becomes of bytes that are not UTF-8.
#pragma once

#include <string>

namespace dpt {

/// Any JSON value as text; `indent` as in nlohmann's dump. Names of files and folders are bytes and
/// need not be UTF-8, which JSON demands: what is not becomes U+FFFD, because a result or message
/// that cannot be written helps nobody. (A template, so that this header needs no JSON library.)
template <class Json>
std::string json_text(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace dpt
