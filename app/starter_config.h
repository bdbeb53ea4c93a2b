// A complete config with comments for data that somebody has: `dpt config init --data`.
#pragma once

#include <string>

namespace dpt {

/// Returns the text of a config for the data set at `path`, which is read: the sizes of its images
/// and the mean of its training samples are in it. `zoo`: the network, or empty for one that suits
/// the data. Throws an Error that says what to do if the data cannot be read or the network does
/// not fit.
std::string starter_config(const std::string& path, const std::string& zoo);

}  // namespace dpt
