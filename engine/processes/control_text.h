// Wording of the control channel's messages about processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/text.h"

namespace dpt::control {

/// Returns "rank 2 (host b, pid 77)".
std::string name_of(int rank, const std::string& host, std::int64_t pid);
/// Returns the text of a heartbeat as the end of a sentence: "at step 17, training" or "before its
/// first step, reading".
std::string place_text(const std::string& heartbeat);
/// Returns "rank 3" or "ranks 0 to 3 and 7". REQUIRES: `ranks` are in ascending order.
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace dpt::control
