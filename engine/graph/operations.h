// The operations that compute a Plan's nodes.
#pragma once

#include <cstdint>

#include "engine/graph/plan.h"
#include "kernels/ops.h"

namespace dpt {

/// A pass over a micro-batch.
struct PassKind {
  std::int64_t batch = 0;
  bool training = true;
  std::uint64_t seed = 0;  ///< seed of the run's random draws
};

/// Returns the operation of a node. REQUIRES: the node is not a view.
OpDesc operation_of(const Plan& plan, const Node& node, const PassKind& pass);

}  // namespace dpt
