// Compiles a Plan's nodes and runs them. All addresses are fixed offsets from the buffers of the
// call, so a pass is a plain sequence of kernel calls.
#include "engine/graph/executor.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "engine/graph/memory_schedule.h"
#include "engine/graph/operations.h"
#include "engine/layers/activation_shape.h"
#include "engine/layers/param_spec.h"
#include "kernels/base/stop_request.h"

namespace dpt {
namespace {

/// Slot of a parameter or running statistic in the flat buffers, and in OpArgs::params.
struct ParamSlot {
  std::size_t at = 0;      // index in OpArgs::params
  std::size_t offset = 0;  // place in the flat buffers, in floats
  bool folded = false;     // true if the values are among the folded parameters

  DevPtr in(DevPtr flat, DType type = DType::f32) const {
    return flat ? flat + offset * size_of(type) : DevPtr{};
  }
};

/// Returns the slot of a layer's parameter. `names` has the parameters of the layer's operation.
ParamSlot slot_of(const Param& param, std::span<const std::string_view> names) {
  const auto found = std::find(names.begin(), names.end(), param.spec.name());
  assert(found != names.end() && "the layer's operation has no parameter of this name");
  return {static_cast<std::size_t>(found - names.begin()), static_cast<std::size_t>(param.offset),
          param.is_folded};
}

DevPtr metrics_after(DevPtr grads, const Plan& plan) {
  return grads + static_cast<std::size_t>(plan.param_floats) * sizeof(float);
}

/// Runs `call` for a layer. Adds the layer's name to an error of the device.
template <class Call>
void for_layer(const std::string& layer, const char* direction, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::device) throw;
    fail(ErrorKind::device, "layer '{}', {}: {}", layer, direction, error.what());
  }
}

}  // namespace

struct Executor::Step {
  /// Sum of the gradients of a value that several nodes read.
  struct Sum {
    std::unique_ptr<Op> op;
    std::vector<Place> parts;
    Place to;
  };

  int node = 0;  // index into Plan::nodes
  std::string name;
  std::unique_ptr<Op> op;    // null for a view, which has a step only for its sums
  std::vector<Place> x, dx;  // places of the inputs and of their gradients
  Place y, dy, saved, forward_scratch, backward_scratch;
  Place dy_from;                // source of a copy to dy before backward, if one is needed
  std::size_t dy_bytes = 0;     // size of that copy
  std::vector<Place> dy_parts;  // parts from which the operation completes dy, if it does
  Place dy_gate;
  std::vector<ParamSlot> params;
  bool adds_gradients = false;          // true if a later layer shares the parameters
  bool keeps_x = true, keeps_y = true;  // true if backward reads them
  bool runs_backward = false;
  bool params_apart = false;  // true if the gradients of the parameters may be computed in a branch
  std::vector<Sum> sums;      // computed after backward

  bool couples() const { return op && op->coupled_channels() > 0; }
};

Executor::Executor(Backend& backend, const Plan& plan, InputDesc input, const Loss& loss,
                   std::int64_t batch, bool training)
    : backend_(backend), batch_(batch), plan_(plan), is_weighted_(loss.is_weighted()) {
  input.batch = batch;
  input.out = plan.input.shape;
  input.type = plan.type;
  input_ = backend.make_input(input);

  eval_loss_ = loss.compile(backend, {batch, plan.classes, plan.type, false, loss.sums});
  if (training)
    train_loss_ = loss.compile(backend, {batch, plan.classes, plan.type, true, loss.sums});

  std::vector<std::unique_ptr<Op>> ops(plan.nodes.size());
  std::vector<std::span<const std::string_view>> names(
      plan.nodes.size());  // names of the parameters
  std::vector<NodeNeeds> needs(plan.nodes.size());
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const Node& node = plan.nodes[i];
    if (node.is_view) continue;
    check_stop();  // creating kernels takes time, and so does timing them on GPUs
    const OpDesc desc = operation_of(plan, node, {batch, training, input.seed});
    for_layer(node.name, "set-up", [&] { ops[i] = backend.make(desc); });
    names[i] = param_names(desc);
    needs[i] = {ops[i]->in_place(),    ops[i]->backward_needs_x(),   ops[i]->backward_needs_y(),
                ops[i]->saved_bytes(), ops[i]->scratch_bytes(),      ops[i]->backward_keeps_dy(),
                ops[i]->passes_dy(),   ops[i]->separate_gradients(), ops[i]->coupled_channels() > 0,
                ops[i]->gates_dy(),    ops[i]->completes_dy(),       ops[i]->has_backward_parts()};
  }

  const MemorySchedule schedule = make_memory_schedule(plan, batch, training, needs);
  arena_bytes_ = schedule.bytes;
  kept_bytes_ = schedule.kept_bytes;
  phases_ = schedule.phases;
  const auto place = [&](int block) {
    const auto at = static_cast<std::size_t>(block);
    return block == kNowhere ? Place{} : Place{schedule.offsets[at], schedule.kept[at]};
  };
  input_at_ = place(schedule.input);
  logits_at_ = place(schedule.logits);
  metrics_at_ = place(schedule.metrics);
  if (training) dlogits_at_ = place(schedule.dlogits);

  const auto places_of = [&](const std::vector<int>& blocks) {
    std::vector<Place> all;
    for (const int block : blocks) all.push_back(place(block));
    return all;
  };
  bool needs_branch = false;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const NodePlaces& places = schedule.nodes[i];
    if (!ops[i] && places.sums.empty()) continue;
    Step step;
    step.node = static_cast<int>(i);
    step.name = plan.nodes[i].name;
    step.op = std::move(ops[i]);
    step.x = places_of(places.x);
    step.y = place(places.y);
    step.dx = places_of(places.dx);
    step.dy = place(places.dy);
    step.dy_from = place(places.dy_from);
    step.dy_parts = places_of(places.dy_parts);
    step.dy_gate = place(places.dy_gate);
    const ActivationShape& out = plan.values[plan.nodes[i].output].shape;
    step.dy_bytes = static_cast<std::size_t>(batch * out.elements()) * size_of(plan.type);
    step.saved = place(places.saved);
    step.forward_scratch = place(places.forward_scratch);
    step.backward_scratch = place(places.backward_scratch);
    step.params_apart = places.params_apart;
    needs_branch |= places.params_apart;
    step.keeps_x = needs[i].backward_needs_x;
    step.keeps_y = needs[i].backward_needs_y;
    // An operation that only passes its gradient on has nothing to run if dx and dy are in the same
    // place.
    const bool hands_on = needs[i].passes_dy && !places.dx.empty() && places.dx[0] == places.dy;
    step.runs_backward = step.op && places.dy != kNowhere && !hands_on;
    for (const GradientSum& sum : places.sums) {
      SumDesc desc;
      desc.batch = batch;
      desc.shape = plan.values[sum.value].shape.shape;
      desc.inputs = static_cast<int>(sum.parts.size());
      desc.type = plan.type;
      desc.training = false;
      step.sums.push_back({backend.make(desc), places_of(sum.parts), place(sum.to)});
    }
    for (const int index : plan.nodes[i].params) {
      const Param& param = plan.params[index];
      if (param.spec.role == ParamRole::counter) continue;
      step.params.push_back(slot_of(param, names[i]));
      step.adds_gradients = param.last_node > step.node;
    }
    if (step.couples()) coupled_.push_back(steps_.size());
    steps_.push_back(std::move(step));
  }
  assert(phases_ == static_cast<int>((training ? 2 : 1) * coupled_.size()) + 1);
  if (needs_branch && backend.make_branches(2) > 1) main_reached_ = backend.make_event();
}

Executor::~Executor() = default;

void Executor::set_inputs(const std::vector<Place>& x, const ExecutorBuffers& buffers,
                          OpArgs& args) {
  args.x = x[0].in(buffers);
  for (std::size_t k = 1; k < x.size(); ++k) args.more_x[k - 1] = x[k].in(buffers);
}

void Executor::set_params(const Step& step, const ExecutorBuffers& buffers, OpArgs& args) {
  for (const ParamSlot& slot : step.params) {
    ParamArgs& to = args.params[slot.at];
    to.f32 = slot.in(slot.folded ? buffers.folded : buffers.params);
    to.bf16 = slot.in(slot.folded ? buffers.folded16 : buffers.params16, DType::bf16);
    to.gradient = slot.in(buffers.grads);
  }
}

InputArgs Executor::input_args(const ExecutorBuffers& buffers, const DeviceBatch& batch) const {
  InputArgs input;
  input.raw = batch.raw;
  input.slots = batch.slots;
  input.ids = batch.ids;
  input.epoch = batch.scalars + offsetof(StepScalars, epoch);
  input.y = input_at_.in(buffers);
  input.boxes = batch.boxes;
  input.mix = batch.mix;
  return input;
}

OpArgs Executor::forward_args(const Step& step, const ExecutorBuffers& buffers,
                              const DeviceBatch& batch, GradWrite write,
                              const MergedCount& merged) const {
  OpArgs args;
  set_inputs(step.x, buffers, args);
  args.y = step.y.in(buffers);
  set_params(step, buffers, args);
  args.saved = step.saved.in(buffers);
  args.scratch = step.forward_scratch.in(buffers);
  args.write = write;
  args.values = merged.values;
  args.samples = merged.samples;
  args.ids = batch.ids;
  args.step = batch.scalars + offsetof(StepScalars, step);
  return args;
}

OpArgs Executor::backward_args(const Step& step, const ExecutorBuffers& buffers,
                               const DeviceBatch& batch, GradWrite write,
                               const MergedCount& merged) const {
  OpArgs args;
  // Other blocks may already use the memory of values that the kernel does not read.
  if (step.keeps_x) set_inputs(step.x, buffers, args);
  if (step.keeps_y) args.y = step.y.in(buffers);
  set_params(step, buffers, args);
  args.dy = step.dy.in(buffers);
  if (!step.dy_parts.empty()) {
    args.dy_parts.first = step.dy_parts[0].in(buffers);
    if (step.dy_parts.size() > 1) args.dy_parts.second = step.dy_parts[1].in(buffers);
    args.dy_parts.gate = step.dy_gate.in(buffers);
  }
  if (!step.dx.empty()) args.dx = step.dx[0].in(buffers);
  if (step.op->separate_gradients()) {
    for (std::size_t k = 1; k < step.dx.size(); ++k) {
      args.more_dx[k - 1] = step.dx[k].in(buffers);
    }
  }
  args.saved = step.saved.in(buffers);
  args.scratch = step.backward_scratch.in(buffers);
  args.write = step.adds_gradients ? GradWrite::add : write;
  args.values = merged.values;
  args.samples = merged.samples;
  args.ids = batch.ids;
  args.step = batch.scalars + offsetof(StepScalars, step);
  return args;
}

LossArgs Executor::train_loss_args(const ExecutorBuffers& buffers, const DeviceBatch& batch,
                                   GradWrite write) const {
  LossArgs loss;
  loss.logits = logits_at_.in(buffers);
  loss.labels = batch.labels;
  loss.targets = batch.targets;
  loss.slots = batch.target_slots ? batch.target_slots : batch.slots;
  loss.dlogits = dlogits_at_.in(buffers);
  loss.metrics = metrics_after(buffers.grads, plan_);
  if (!is_weighted_) loss.inverse_count = batch.scalars + offsetof(StepScalars, inverse_count);
  loss.write = write;
  return loss;
}

MergedCount Executor::own_count(int node) const {
  const ActivationShape& shape = plan_.values[plan_.nodes[node].output].shape;
  const auto samples = static_cast<double>(batch_);
  return {samples * static_cast<double>(shape.positions()), samples};
}

void Executor::forward_statistics(const Step& step, const ExecutorBuffers& buffers,
                                  const DeviceBatch& batch) {
  const OpArgs args =
      forward_args(step, buffers, batch, GradWrite::overwrite, own_count(step.node));
  for_layer(step.name, "statistics", [&] { step.op->forward_statistics(args); });
}

void Executor::forward(const Step& step, const ExecutorBuffers& buffers, const DeviceBatch& batch,
                       GradWrite write, const MergedCount& merged) {
  if (!step.op) return;
  const OpArgs args = forward_args(step, buffers, batch, write, merged);
  for_layer(step.name, "forward", [&] { step.op->forward(args); });
}

/// Runs forward of all nodes. For passes whose statistics cover only the samples of this call.
void Executor::forward_all(const ExecutorBuffers& buffers, const DeviceBatch& batch,
                           const OutputVisitor& visit) {
  const InputArgs input = input_args(buffers, batch);
  input_->run(input);
  if (visit) visit(-1, input.y, batch_ * plan_.input.shape.elements());
  for (const Step& step : steps_) {
    if (!step.op) continue;
    if (step.couples()) forward_statistics(step, buffers, batch);
    forward(step, buffers, batch, GradWrite::overwrite, own_count(step.node));
    if (!visit) continue;
    const Node& node = plan_.nodes[step.node];
    const Value& value = plan_.values[node.output];
    visit(step.node, step.y.in(buffers), batch_ * value.shape.shape.elements());
  }
}

void Executor::visit_outputs(const ExecutorBuffers& buffers, const DeviceBatch& batch,
                             const OutputVisitor& visit) {
  forward_all(buffers, batch, visit);
}

void Executor::backward_statistics(const Step& step, const ExecutorBuffers& buffers,
                                   const DeviceBatch& batch, GradWrite write,
                                   const MergedCount& merged) {
  if (!step.runs_backward) return;
  const OpArgs args = backward_args(step, buffers, batch, write, merged);
  for_layer(step.name, "backward statistics", [&] { step.op->backward_statistics(args); });
}

void Executor::backward(const Step& step, const ExecutorBuffers& buffers, const DeviceBatch& batch,
                        GradWrite write, const MergedCount& merged, const InBranch& in_branch) {
  for_layer(step.name, "backward", [&] {
    if (step.runs_backward) {
      const OpArgs args = backward_args(step, buffers, batch, write, merged);
      if (step.dy_from.given()) {
        backend_.copy(args.dy, step.dy_from.in(buffers), step.dy_bytes);
      }
      if (in_branch) {
        step.op->begin_backward(args);
        in_branch([&] { step.op->backward_params(args); });
        step.op->backward_data(args);
      } else {
        step.op->backward(args);
      }
    }
    for (const Step::Sum& sum : step.sums) {
      OpArgs args;
      set_inputs(sum.parts, buffers, args);
      args.y = sum.to.in(buffers);
      sum.op->forward(args);
    }
  });
}

void Executor::train(const ExecutorBuffers& buffers, const DeviceBatch& batch, GradWrite write,
                     const std::function<void(int node)>& after_node) {
  for (int phase = 0; phase < phases_; ++phase) {
    train_phase(
        phase, buffers, batch, write, [this](int node) { return own_count(node); }, after_node);
  }
}

void Executor::train_phase(int phase, const ExecutorBuffers& buffers, const DeviceBatch& batch,
                           GradWrite write, const Merged& merged,
                           const std::function<void(int node)>& after_node) {
  assert(train_loss_ && "this executor was made for evaluation only");
  const std::size_t count = coupled_.size();
  const auto at = static_cast<std::size_t>(phase);
  const auto merged_for = [&](const Step& step) {
    return step.couples() ? merged(step.node) : MergedCount{};
  };
  if (at == 0) input_->run(input_args(buffers, batch));
  if (at <= count) {
    const std::size_t end = at < count ? coupled_[at] : steps_.size();
    for (std::size_t i = at == 0 ? 0 : coupled_[at - 1]; i < end; ++i) {
      forward(steps_[i], buffers, batch, write, merged_for(steps_[i]));
    }
    if (at < count) return forward_statistics(steps_[coupled_[at]], buffers, batch);
    train_loss_->run(train_loss_args(buffers, batch, write));
    if (buffers.times) backend_.end_phase(buffers.times, StepPhase::forward);
  }
  // Number of coupled nodes whose backward is still to come after this phase.
  const std::size_t left = 2 * count - at;
  const std::size_t begin = left == count ? steps_.size() : coupled_[left] + 1;
  const std::size_t end = left == 0 ? 0 : coupled_[left - 1] + 1;
  // `after_node` reads the complete gradients of a node, so do not use a branch if it is given.
  const bool may_fork = main_reached_ && buffers.may_fork && !after_node;
  bool forked = false;
  const InBranch in_branch = [&](const std::function<void()>& work) {
    if (std::exchange(forked, true)) {
      backend_.record(*main_reached_);
      backend_.select_branch(1);
      backend_.wait_for(*main_reached_);
    } else {
      backend_.fork(2);
      backend_.select_branch(1);
    }
    work();
    backend_.select_branch(0);
  };
  for (std::size_t i = begin; i-- > end;) {
    const Step& step = steps_[i];
    if (!step.runs_backward && step.sums.empty()) continue;
    backward(step, buffers, batch, write, merged_for(step),
             may_fork && step.params_apart ? in_branch : InBranch());
    if (after_node) after_node(step.node);
  }
  if (forked) backend_.join();
  if (left > 0) {
    const Step& next = steps_[coupled_[left - 1]];
    backward_statistics(next, buffers, batch, write, merged_for(next));
  }
  if (buffers.times) backend_.end_phase(buffers.times, StepPhase::backward);
}

DevPtr Executor::statistics(int phase, const ExecutorBuffers& buffers) const {
  const std::size_t count = coupled_.size();
  const auto at = static_cast<std::size_t>(phase);
  const bool is_forward = at < count;
  const Step& step = steps_[coupled_[is_forward ? at : 2 * count - at - 1]];
  if (!is_forward && !step.runs_backward) return {};
  const auto behind = static_cast<std::size_t>(2 * step.op->coupled_channels()) * sizeof(float);
  return step.saved.in(buffers) + (is_forward ? 0 : behind);
}

std::vector<ExecutorCall> Executor::train_calls(const ExecutorBuffers& buffers,
                                                const DeviceBatch& batch) {
  assert(train_loss_ && "this executor was made for evaluation only");
  constexpr GradWrite kWrite = GradWrite::overwrite;
  // A node's FLOPs are those of all layers that were fused into it.
  const auto flops = [&](const Step& step, double LayerRow::*of) {
    double sum = 0;
    for (const int layer : plan_.nodes[step.node].source_layers) {
      sum += plan_.rows[layer].*of;
    }
    return sum * static_cast<double>(batch_);
  };
  std::vector<ExecutorCall> calls;
  calls.push_back({"input", 0, [this, args = input_args(buffers, batch)] { input_->run(args); }});
  for (const Step& step : steps_) {
    if (!step.op) continue;
    if (step.couples()) {
      calls.push_back({step.name + " statistics", 0, [this, &step, buffers, batch] {
                         forward_statistics(step, buffers, batch);
                       }});
    }
    calls.push_back({step.name + " forward", flops(step, &LayerRow::forward_flops),
                     [this, &step, buffers, batch] {
                       forward(step, buffers, batch, kWrite, own_count(step.node));
                     }});
  }
  calls.push_back({"loss", 0, [this, args = train_loss_args(buffers, batch, kWrite)] {
                     train_loss_->run(args);
                   }});
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (!step->runs_backward && step->sums.empty()) continue;
    if (step->couples()) {
      calls.push_back(
          {step->name + " backward statistics", 0, [this, &step = *step, buffers, batch] {
             backward_statistics(step, buffers, batch, kWrite, own_count(step.node));
           }});
    }
    calls.push_back({step->name + " backward", flops(*step, &LayerRow::backward_flops),
                     [this, &step = *step, buffers, batch] {
                       backward(step, buffers, batch, kWrite, own_count(step.node));
                     }});
  }
  return calls;
}

void Executor::evaluate(const ExecutorBuffers& buffers, const DeviceBatch& batch,
                        const EvalOutputs& outputs) {
  forward_all(buffers, batch);

  LossArgs loss;
  loss.logits = logits_at_.in(buffers);
  loss.labels = batch.labels;
  loss.targets = batch.targets;
  loss.slots = batch.slots;
  loss.metrics = outputs.metrics ? outputs.metrics : metrics_at_.in(buffers);
  loss.sample_loss = outputs.sample_loss;
  loss.sample_sums = outputs.sample_sums;
  loss.prediction = outputs.prediction;
  loss.outputs = outputs.outputs;
  eval_loss_->run(loss);
}

std::vector<std::string> Executor::implementations() const {
  std::vector<std::string> all;
  for (const Step& step : steps_) {
    if (!step.op) continue;
    all.push_back(fmt::format("{}: {}", step.name, step.op->implementation()));
  }
  return all;
}

}  // namespace dpt
