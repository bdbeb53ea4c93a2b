#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/collectives/link_options.h"
#include "engine/collectives/process_links.h"

namespace dpt {

/// Makes links over TCP: one connection for each pair of processes. Other connections to the port
/// on which this process listens are closed, and do no harm. Collective. Throws ErrorKind::peer if
/// the links cannot be made, naming the pair.
std::unique_ptr<ProcessLinks> make_tcp_links(const LinkOptions& options, const GatherTexts& gather);

}  // namespace dpt
