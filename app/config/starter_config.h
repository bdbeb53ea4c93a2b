// Writes a complete, commented config for existing data: `dpt config init --data`.
#pragma once

#include <string>

namespace dpt {

/// Reads the data set at `path` and returns the text of a config for it. `zoo` is the network; if
/// empty, one that suits the data is chosen. Throws an Error with a remedy if the data cannot be
/// read or the network does not fit.
std::string starter_config(const std::string& path, const std::string& zoo);

}  // namespace dpt
