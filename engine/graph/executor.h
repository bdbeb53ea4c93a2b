// A Plan compiled for one device and one batch size: kernels, and the places of their data in an
// arena.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/graph/executor_args.h"
#include "engine/graph/plan.h"
#include "engine/losses/loss.h"
#include "kernels/backend.h"

namespace dpt {

/// One call of a training step. Each call can be timed separately.
struct ExecutorCall {
  std::string name;  ///< "input", "conv1 forward", "loss", "conv1 backward"
  double flops = 0;  ///< operations of its matrix products and convolutions, for the whole batch
  std::function<void()> run;
};

/// Runs a plan. REQUIRES: `backend` and `plan` outlive the executor. Used by one thread, the
/// backend's. Running allocates nothing and queues everything, as the backend's contract states.
/// The message of a device error begins with the layer's name. (If the device reports the error
/// late, this may be the name of a later layer.)
class Executor {
 public:
  /// `input` describes the first kernel. The constructor fills in its batch, out and type. If
  /// `training` is false, only evaluations may be run.
  Executor(Backend& backend, const Plan& plan, InputDesc input, const Loss& loss,
           std::int64_t batch, bool training);
  ~Executor();

  std::int64_t batch() const { return batch_; }
  /// Returns the size of the arena, which executors that run one after another may share.
  std::size_t arena_bytes() const { return arena_bytes_; }
  /// Returns the size of the memory that only this pass may use from its first phase to its last.
  std::size_t kept_bytes() const { return kept_bytes_; }

  /// Runs the input kernel, forward, loss and backward. Overwrites gradients and metrics or adds to
  /// them, according to `write`. The gradients are those of the mean loss over the batch whose
  /// inverse_count is in the scalars, or of the summed loss if it is weighted (Loss::is_weighted).
  /// After the backward of each node is queued, calls `after_node` with the node's index in
  /// Plan::nodes.
  void train(const ExecutorBuffers& buffers, const DeviceBatch& batch, GradWrite write,
             const std::function<void(int node)>& after_node = {});

  // The next members run a training pass over one of several micro-batches of a shard, phase by
  // phase (memory_schedule.h). All micro-batches run a phase before any begins the next. With n
  // nodes that couple samples, there are 2n + 1 phases. Phases 0 to n - 1 end with the moments of
  // the input of such a node, in the order of Plan::nodes. Phases n to 2n - 1 end with the sums
  // that its backward needs, in reverse order.
  int phases() const { return phases_; }
  /// Returns the place of the statistics that a phase computed; null if they are not needed.
  DevPtr statistics(int phase, const ExecutorBuffers& buffers) const;
  /// Function that takes a node that couples samples (such as batch norm) and returns the numbers
  /// of values and samples that its statistics cover.
  using Merged = std::function<MergedCount(int node)>;
  void train_phase(int phase, const ExecutorBuffers& buffers, const DeviceBatch& batch,
                   GradWrite write, const Merged& merged,
                   const std::function<void(int node)>& after_node = {});

  /// Runs the input kernel, forward and loss. Writes predictions and losses per sample.
  void evaluate(const ExecutorBuffers& buffers, const DeviceBatch& batch,
                const EvalOutputs& outputs);

  /// Returns the calls of `train` in their order. Once all of them have run, each may be run any
  /// number of times.
  std::vector<ExecutorCall> train_calls(const ExecutorBuffers& buffers, const DeviceBatch& batch);

  /// Runs the input kernel and forward. Calls `visit` with each output as soon as its computation
  /// is queued, because later kernels may reuse its memory. `node` is the index in Plan::nodes, or
  /// -1 for the input kernel; `elements` is the number of values of type Plan::type.
  using OutputVisitor = std::function<void(int node, DevPtr y, std::int64_t elements)>;
  void visit_outputs(const ExecutorBuffers& buffers, const DeviceBatch& batch,
                     const OutputVisitor& visit);

  /// Returns the implementation of every node, such as "conv1: jit:avx2".
  std::vector<std::string> implementations() const;

 private:
  struct Step;
  /// A place in the arena or in the kept memory; may be empty.
  struct Place {
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
    std::size_t offset = kNone;
    bool kept = false;

    bool given() const { return offset != kNone; }
    bool operator==(const Place&) const = default;
    DevPtr in(const ExecutorBuffers& buffers) const {
      return given() ? (kept ? buffers.kept : buffers.arena) + offset : DevPtr{};
    }
  };
  static void set_inputs(const std::vector<Place>& x, const ExecutorBuffers& buffers, OpArgs& args);
  InputArgs input_args(const ExecutorBuffers& buffers, const DeviceBatch& batch) const;
  OpArgs forward_args(const Step& step, const ExecutorBuffers& buffers, const DeviceBatch& batch,
                      GradWrite write, const MergedCount& merged) const;
  OpArgs backward_args(const Step& step, const ExecutorBuffers& buffers, const DeviceBatch& batch,
                       GradWrite write, const MergedCount& merged) const;
  LossArgs train_loss_args(const ExecutorBuffers& buffers, const DeviceBatch& batch,
                           GradWrite write) const;
  static void set_params(const Step& step, const ExecutorBuffers& buffers, OpArgs& args);
  /// Returns the count for the statistics of this micro-batch alone.
  MergedCount own_count(int node) const;
  void forward(const Step& step, const ExecutorBuffers& buffers, const DeviceBatch& batch,
               GradWrite write, const MergedCount& merged);
  void forward_statistics(const Step& step, const ExecutorBuffers& buffers,
                          const DeviceBatch& batch);
  void forward_all(const ExecutorBuffers& buffers, const DeviceBatch& batch,
                   const OutputVisitor& visit = {});
  /// Function that queues the calls of `work` in a branch.
  using InBranch = std::function<void(const std::function<void()>& work)>;
  /// Runs the backward pass of one node, then the gradient sums for which it has computed the last
  /// part. `in_branch`, if given, runs the part of backward that computes the gradients of the
  /// parameters.
  void backward(const Step& step, const ExecutorBuffers& buffers, const DeviceBatch& batch,
                GradWrite write, const MergedCount& merged, const InBranch& in_branch = {});
  void backward_statistics(const Step& step, const ExecutorBuffers& buffers,
                           const DeviceBatch& batch, GradWrite write, const MergedCount& merged);

  Backend& backend_;
  std::int64_t batch_ = 0;
  std::size_t arena_bytes_ = 0, kept_bytes_ = 0;
  int phases_ = 1;
  const Plan& plan_;
  std::unique_ptr<InputOp> input_;
  std::unique_ptr<LossOp> train_loss_, eval_loss_;  ///< train_loss_ only for training
  bool is_weighted_ = false;                        ///< Loss::is_weighted
  /// Event for which branch 1 waits; null if no node uses the branch, or if the device has no
  /// branches.
  std::unique_ptr<Event> main_reached_;
  Place input_at_, logits_at_, dlogits_at_, metrics_at_;
  std::vector<Step> steps_;
  std::vector<std::size_t> coupled_;  ///< indices into steps_
};

}  // namespace dpt
