// Escapes untrusted text for HTML and XML, so that no part of it becomes markup. Bytes that are not
// UTF-8 become U+FFFD.
#pragma once

#include <string>

namespace dpt {

/// Escapes text for an element or a quoted attribute of HTML. Control characters other than line
/// ends and tabs are shown as \\xNN.
std::string html_text(const std::string& text);

/// Escapes text for an element or an attribute in double quotes of XML 1.0. Characters that XML
/// does not allow become U+FFFD.
std::string xml_text(const std::string& text);

}  // namespace dpt
