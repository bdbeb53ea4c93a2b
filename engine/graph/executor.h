// A Plan compiled for one device and one batch size: kernels and their places in an arena.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/graph/plan.h"
#include "kernels/backend.h"

namespace dpt {

/// The memory that one call uses. Parameters and gradients are the flat buffers of the Plan.
struct ExecutorBuffers {
  DevPtr params;
  DevPtr params16;  ///< the same in bf16; only for a plan of that type
  DevPtr grads;     ///< null for evaluation; the StepMetrics stand after the gradients
  DevPtr arena;     ///< at least arena_bytes()
};

/// A batch on the device, as raw samples (see InputArgs).
struct DeviceBatch {
  DevPtr raw, labels;  ///< indexed by slots
  DevPtr slots, ids;   ///< `batch` entries each
  DevPtr scalars;      ///< StepScalars
};

/// Outputs of an evaluation, per sample; any may be null.
struct EvalOutputs {
  DevPtr sample_loss, prediction;
  DevPtr metrics;  ///< StepMetrics, overwritten
};

/// One call of a training step, to be timed separately.
struct ExecutorCall {
  std::string name;  ///< "input", "conv1 forward", "loss", "conv1 backward"
  double flops = 0;  ///< of its products, for the whole batch
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
  Executor(Backend& backend, const Plan& plan, InputDesc input, float label_smoothing,
           std::int64_t batch, bool training);
  ~Executor();

  std::int64_t batch() const { return batch_; }
  std::size_t arena_bytes() const { return arena_bytes_; }

  /// Input kernel, forward, loss, backward. Gradients and metrics are overwritten or added to.
  /// `after_node` is called after each node's backward is queued, with its index in Plan::nodes.
  void train(const ExecutorBuffers& buffers, const DeviceBatch& batch, GradWrite write,
             const std::function<void(int node)>& after_node = {});
  /// Input kernel, forward, loss. Gives predictions and losses per sample.
  void evaluate(const ExecutorBuffers& buffers, const DeviceBatch& batch,
                const EvalOutputs& outputs);

  /// What `train` calls, in its order; each may be run any number of times once all have run. The
  /// arguments are those of `train`.
  std::vector<ExecutorCall> train_calls(const ExecutorBuffers& buffers, const DeviceBatch& batch);

  /// Input kernel and forward; calls `look` with each output as soon as what computes it is queued
  /// (later kernels may reuse its memory): the index in Plan::nodes, -1 for the input kernel, and
  /// how many elements of Plan::type there are.
  using Look = std::function<void(int node, DevPtr y, std::int64_t elements)>;
  void look_through(const ExecutorBuffers& buffers, const DeviceBatch& batch, const Look& look) {
    forward(buffers, batch, look);
  }

  /// "conv1: jit:avx2" for every node.
  std::vector<std::string> implementations() const;

 private:
  struct Step;
  InputArgs input_args(const ExecutorBuffers& buffers, const DeviceBatch& batch) const;
  OpArgs forward_args(const Step& step, const ExecutorBuffers& buffers) const;
  OpArgs backward_args(const Step& step, const ExecutorBuffers& buffers, GradWrite write) const;
  CrossEntropyArgs train_loss_args(const ExecutorBuffers& buffers, const DeviceBatch& batch,
                                   GradWrite write) const;
  void add_params(const Step& step, const ExecutorBuffers& buffers, OpArgs& args) const;
  void forward(const ExecutorBuffers& buffers, const DeviceBatch& batch, const Look& look = {});
  /// Backward of one node, then the sums of gradients that are complete with it.
  void backward(const Step& step, const ExecutorBuffers& buffers, GradWrite write);

  Backend& backend_;
  std::int64_t batch_ = 0;
  std::size_t arena_bytes_ = 0;
  const Plan& plan_;
  std::unique_ptr<InputOp> input_;
  std::unique_ptr<CrossEntropyOp> train_loss_, eval_loss_;  ///< train_loss_ only for training
  std::size_t input_at_ = 0, logits_at_ = 0, dlogits_at_ = 0, metrics_at_ = 0;
  std::vector<Step> steps_;
};

}  // namespace dpt
