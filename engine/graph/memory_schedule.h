// When each block of a pass's memory is in use, and so where it may lie in the arena. Shared by the
// Executor, which knows its kernels' needs, and by the estimate, which assumes them.
//
// A pass is a sequence of steps: 0 the input kernel, then every node forward, then the loss, then,
// for training, every node backward in reverse. Where several nodes read a value, their gradients
// are added up in the step of the node that gives the last of them.
//
// A pass over a shard may be made in pieces (micro-batches). Before a node that couples samples
// runs, forward or backward, all pieces must have come that far: this divides the pass into phases.
// All pieces run a phase, one after the other, before any begins the next. So what is used in one
// phase only lies in memory that the pieces share, and each piece keeps the rest for itself.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/graph/memory.h"
#include "engine/graph/plan.h"

namespace dpt {

/// Memory requirements of a node's kernel (see Op).
struct NodeNeeds {
  bool in_place = false;
  bool backward_needs_x = true, backward_needs_y = true;
  std::size_t saved_bytes = 0, scratch_bytes = 0;
  bool keeps_dy = false;            ///< Op::backward_keeps_dy
  bool passes_dy = false;           ///< Op::passes_dy
  bool separate_gradients = false;  ///< Op::separate_gradients
  bool couples = false;             ///< Op::coupled_channels() > 0
};

inline constexpr int kNowhere = -1;

/// Gradients of one value, each from another of its readers, and where their sum goes (which may be
/// one of them).
struct GradientSum {
  int value = 0;           ///< index into Plan::values
  std::vector<int> parts;  ///< 2 to kMaxInputs; places, as in NodePlaces
  int to = kNowhere;
};

/// Indices into MemorySchedule::lifetimes and ::offsets; kNowhere = not needed.
struct NodePlaces {
  std::vector<int> x;  ///< place of each input
  int y = kNowhere;
  std::vector<int> dx;  ///< the gradient of each input: one and the same, or separate ones
  int dy = kNowhere;    ///< set exactly when backward runs
  /// Place to copy to dy before backward, which would overwrite values that others still need.
  int dy_from = kNowhere;
  std::vector<GradientSum> sums;  ///< to be made after the node's backward, in this order
  int saved = kNowhere;
  int forward_scratch = kNowhere, backward_scratch = kNowhere;
};

struct MemorySchedule {
  std::vector<Lifetime> lifetimes;   ///< lifetimes of blocks that have a place of their own
  std::vector<std::size_t> offsets;  ///< the place of each, in bytes
  std::vector<bool> kept;            ///< true if the place is in the micro-batch's own memory
  std::size_t bytes = 0;             ///< size of the arena that micro-batches share
  std::size_t kept_bytes = 0;        ///< size of a micro-batch's own memory
  int phases = 1;                    ///< number of phases of a whole pass
  std::vector<NodePlaces>
      nodes;               ///< in the order of Plan::nodes; a view has its blocks' places too
  int input = kNowhere;    ///< output of the input kernel
  int logits = kNowhere;   ///< input of the loss
  int dlogits = kNowhere;  ///< gradient that the loss writes in training; may be `logits`
  int metrics = kNowhere;  ///< room for StepMetrics that nobody asked for
};

/// Steps of a pass over `nodes` nodes.
constexpr int forward_step(int node) {
  return 1 + node;
}
constexpr int loss_step(int nodes) {
  return 1 + nodes;
}
constexpr int backward_step(int nodes, int node) {
  return 2 * nodes + 1 - node;
}

/// REQUIRES: `needs` has an entry per node.
MemorySchedule make_memory_schedule(const Plan& plan, std::int64_t batch, bool training,
                                    const std::vector<NodeNeeds>& needs);

/// Bytes of a replica for a given batch per device: parameters, gradients, optimizer state of
/// `optimizer_buffers` flat buffers from gradient_begin() on, activations (by lifetime, kernels'
/// workspaces not included).
struct MemoryEstimate {
  std::int64_t params = 0, grads = 0, optimizer = 0, activations = 0;
  std::int64_t total() const { return params + grads + optimizer + activations; }
};
/// `pieces` micro-batches of `batch` samples go through a pass together.
MemoryEstimate estimate_memory(const Plan& plan, std::int64_t batch, int optimizer_buffers,
                               std::int64_t pieces = 1);

}  // namespace dpt
