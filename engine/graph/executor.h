// A Plan compiled for one device and one batch size: kernels and their places in an arena.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/graph/executor_args.h"
#include "engine/graph/plan.h"
#include "engine/losses/loss.h"
#include "kernels/backend.h"

namespace dpt {

/// One call of a training step, to be timed separately.
struct ExecutorCall {
  std::string name;  ///< "input", "conv1 forward", "loss", "conv1 backward"
  double flops = 0;  ///< operations of its products, for the whole batch
  std::function<void()> run;
};

/// A device failure is thrown with the layer's name as prefix. (A failure that the device reports
/// late may be attributed to a later layer.) REQUIRES: `backend` and `plan` outlive it. Used by one
/// thread, the backend's. Running allocates nothing; everything is queued as the backend's contract
/// says.
class Executor {
 public:
  /// `input` describes the first kernel; its batch, out and type are filled in here. With
  /// `training` false only `evaluate` may be called.
  Executor(Backend& backend, const Plan& plan, InputDesc input, const Loss& loss,
           std::int64_t batch, bool training);
  ~Executor();

  std::int64_t batch() const { return batch_; }
  /// Returns the size of the arena, which executors that run one after another may share.
  std::size_t arena_bytes() const { return arena_bytes_; }
  /// Returns the size of the memory that only this pass may use from its first phase to its last.
  std::size_t kept_bytes() const { return kept_bytes_; }

  /// Input kernel, forward, loss, backward. Gradients and metrics are overwritten or added to. The
  /// gradients are those of the mean over the batch whose inverse_count the scalars have; of a
  /// weighted loss (Loss::is_weighted) those of the sum.
  /// `after_node` is called after each node's backward is queued, with its index in Plan::nodes.
  void train(const ExecutorBuffers& buffers, const DeviceBatch& batch, GradWrite write,
             const std::function<void(int node)>& after_node = {});

  // The same for one of several micro-batches of a shard, phase by phase (memory_schedule.h). All
  // of them run a phase before one begins the next. With n nodes that couple samples, the number of
  // phases is 2n + 1: phases 0 to n - 1 end with the moments of a node's input, phases n to 2n - 1
  // with the sums of its backward, in the order of Plan::nodes and then in reverse.
  int phases() const { return phases_; }
  /// Returns the place of the statistics with which a phase ended; null if nobody needs them.
  DevPtr statistics(int phase, const ExecutorBuffers& buffers) const;
  /// Function from a node that couples samples to the count that its statistics cover.
  using Merged = std::function<MergedCount(int node)>;
  void train_phase(int phase, const ExecutorBuffers& buffers, const DeviceBatch& batch,
                   GradWrite write, const Merged& merged,
                   const std::function<void(int node)>& after_node = {});

  /// Input kernel, forward, loss. Gives predictions and losses per sample.
  void evaluate(const ExecutorBuffers& buffers, const DeviceBatch& batch,
                const EvalOutputs& outputs);

  /// Returns the calls of `train` in their order; each may be run any number of times once all have
  /// run.
  std::vector<ExecutorCall> train_calls(const ExecutorBuffers& buffers, const DeviceBatch& batch);

  /// Input kernel and forward; calls `look` with each output as soon as what computes it is queued
  /// (later kernels may reuse its memory): the index in Plan::nodes, -1 for the input kernel, and
  /// how many elements of Plan::type there are.
  using Look = std::function<void(int node, DevPtr y, std::int64_t elements)>;
  void look_through(const ExecutorBuffers& buffers, const DeviceBatch& batch, const Look& look);

  /// "conv1: jit:avx2" for every node.
  std::vector<std::string> implementations() const;

 private:
  struct Step;
  /// A place in the arena or in the kept memory, or none.
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
  void forward_all(const ExecutorBuffers& buffers, const DeviceBatch& batch, const Look& look = {});
  /// Backward of one node, then the sums of gradients that are complete with it.
  void backward(const Step& step, const ExecutorBuffers& buffers, const DeviceBatch& batch,
                GradWrite write, const MergedCount& merged);
  void backward_statistics(const Step& step, const ExecutorBuffers& buffers,
                           const DeviceBatch& batch, GradWrite write, const MergedCount& merged);

  Backend& backend_;
  std::int64_t batch_ = 0;
  std::size_t arena_bytes_ = 0, kept_bytes_ = 0;
  int phases_ = 1;
  const Plan& plan_;
  std::unique_ptr<InputOp> input_;
  std::unique_ptr<LossOp> train_loss_, eval_loss_;  ///< train_loss_ only for training
  bool is_weighted_ = false;                        ///< the loss
  Place input_at_, logits_at_, dlogits_at_, metrics_at_;
  std::vector<Step> steps_;
  std::vector<std::size_t> coupled_;  ///< indices into steps_
};

}  // namespace dpt
