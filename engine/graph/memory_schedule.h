// Lifetimes of the blocks of a pass's memory, and thus their places in the arena. Used by the
// Executor, which knows the needs of its kernels, and by the memory estimate, which assumes them.
//
// A pass is a sequence of steps: the input kernel (step 0), every node forward, the loss, and, for
// training, every node backward in reverse order. If several nodes read a value, their gradients
// are summed in the step of the node that computes the last of them. If the node that computed the
// value can complete its gradient (Op::completes_dy), that node adds them up instead.
//
// A pass over a shard may consist of several micro-batches. Before a node that couples samples
// runs, forward or backward, all micro-batches must have reached it. Such nodes therefore divide
// the pass into phases. All micro-batches run a phase, one after another, before any begins the
// next. So blocks that are used in only one phase lie in memory that the micro-batches share, and
// each micro-batch has its own memory for all other blocks.
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
  bool gates_dy = false;            ///< Op::gates_dy
  bool completes_dy = false;        ///< Op::completes_dy
  bool backward_parts = false;      ///< Op::has_backward_parts
};

inline constexpr int kNowhere = -1;

/// Gradients of one value, each from a different reader, and the place of their sum. That place may
/// be the place of one of them.
struct GradientSum {
  int value = 0;           ///< index into Plan::values
  std::vector<int> parts;  ///< 2 to kMaxInputs; places, as in NodePlaces
  int to = kNowhere;
};

/// Indices into MemorySchedule::lifetimes and ::offsets; kNowhere = not needed.
struct NodePlaces {
  std::vector<int> x;  ///< place of each input
  int y = kNowhere;
  std::vector<int> dx;  ///< place of each input's gradient: the same for all, or separate ones
  int dy = kNowhere;    ///< set exactly when backward runs
  /// Place from which dy is copied before backward, if backward would overwrite a gradient that
  /// other nodes still read.
  int dy_from = kNowhere;
  /// Parts from which backward completes dy, as in GradientParts: one or two parts, and the gate.
  /// If there are no parts, dy is already complete.
  std::vector<int> dy_parts;
  int dy_gate = kNowhere;
  std::vector<GradientSum> sums;  ///< to be computed after the node's backward, in this order
  int saved = kNowhere;
  int forward_scratch = kNowhere, backward_scratch = kNowhere;
  /// True if the gradients of the parameters may be computed at any time until the pass ends,
  /// because everything they read is kept until then.
  bool params_apart = false;
};

struct MemorySchedule {
  std::vector<Lifetime> lifetimes;   ///< lifetime of each block
  std::vector<std::size_t> offsets;  ///< place of each block, in bytes
  std::vector<bool> kept;            ///< true if the place is in the micro-batch's own memory
  std::size_t bytes = 0;             ///< size of the arena that micro-batches share
  std::size_t kept_bytes = 0;        ///< size of a micro-batch's own memory
  int phases = 1;                    ///< number of phases of a whole pass
  std::vector<NodePlaces> nodes;     ///< in the order of Plan::nodes, views included
  int input = kNowhere;              ///< output of the input kernel
  int logits = kNowhere;             ///< input of the loss
  int dlogits = kNowhere;            ///< gradient that the loss writes in training; may be `logits`
  int metrics = kNowhere;            ///< room for StepMetrics that the caller does not want
};

/// Returns the number of a step in a pass over `nodes` nodes.
constexpr int forward_step(int node) {
  return 1 + node;
}
constexpr int loss_step(int nodes) {
  return 1 + nodes;
}
constexpr int backward_step(int nodes, int node) {
  return 2 * nodes + 1 - node;
}

/// Makes the schedule. REQUIRES: `needs` has one entry per node.
MemorySchedule make_memory_schedule(const Plan& plan, std::int64_t batch, bool training,
                                    const std::vector<NodeNeeds>& needs);

/// Memory of a replica in bytes for a given batch per device. Covers parameters, gradients, the
/// optimizer's state (`optimizer_buffers` flat buffers from gradient_begin() on) and activations
/// (by lifetime, without the kernels' workspaces).
struct MemoryEstimate {
  std::int64_t params = 0, grads = 0, optimizer = 0, activations = 0;
  std::int64_t total() const { return params + grads + optimizer + activations; }
};
/// Estimates the memory for `pieces` micro-batches of `batch` samples that go through a pass
/// together.
MemoryEstimate estimate_memory(const Plan& plan, std::int64_t batch, int optimizer_buffers,
                               std::int64_t pieces = 1);

}  // namespace dpt
