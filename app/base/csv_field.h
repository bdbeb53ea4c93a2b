#pragma once

#include <string>

namespace dpt {

/// Returns a CSV field, in quotes if necessary (RFC 4180).
std::string csv_field(const std::string& text);

}  // namespace dpt
