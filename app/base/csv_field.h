#pragma once

#include <string>

namespace dpt {

/// Returns a CSV field, quoted where it must be (RFC 4180).
std::string csv_field(const std::string& text);

}  // namespace dpt
