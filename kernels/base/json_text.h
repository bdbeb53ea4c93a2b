// JSON as text. Only this header decides how bytes that are not UTF-8 are written.
#pragma once

#include <string>

namespace dpt {

/// Returns any JSON value as text. `indent` is as in nlohmann's dump. JSON requires UTF-8, but
/// names of files and folders may contain other bytes. These become U+FFFD, because a result or
/// message must never fail to be written. (A template, so that this header needs no JSON library.)
template <class Json>
std::string json_text(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace dpt
