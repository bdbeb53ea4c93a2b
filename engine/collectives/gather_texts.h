// Gathering of texts of any length from all ranks.
#pragma once

#include <string>
#include <vector>

#include "engine/collectives/communicator.h"

namespace dpt {

/// Returns the texts of all ranks, in rank order. Collective; for small texts.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& mine);

}  // namespace dpt
