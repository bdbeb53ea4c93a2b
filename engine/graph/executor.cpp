// Compiles a Plan's nodes and runs them. All addresses are fixed offsets from the buffers that a
// call hands in, so a pass is a straight row of kernel calls.
#include "engine/graph/executor.h"

#include <cassert>
#include <cstddef>
#include <limits>
#include <optional>

#include "engine/graph/memory_schedule.h"

namespace dpt {
namespace {

/// An offset in bytes that may be absent.
struct Place {
  std::size_t offset = std::numeric_limits<std::size_t>::max();

  bool given() const { return offset != std::numeric_limits<std::size_t>::max(); }
  DevPtr in(DevPtr base) const { return given() ? base + offset : DevPtr{}; }
};

void set_inputs(const std::vector<Place>& x, DevPtr arena, OpArgs& args) {
  args.x = x[0].in(arena);
  for (std::size_t k = 1; k < x.size(); ++k) args.more_x[k - 1] = x[k].in(arena);
}

DevPtr metrics_after(DevPtr grads, const Plan& plan) {
  return grads + static_cast<std::size_t>(plan.param_floats) * sizeof(float);
}

/// Runs `call` for a layer; an error of the device gets its name.
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
  /// Adds up the gradients that several readers of a value gave.
  struct Sum {
    std::unique_ptr<Op> op;
    std::vector<Place> parts;
    Place to;
  };

  int node = 0;  // in Plan::nodes
  std::string name;
  std::unique_ptr<Op> op;  // none for a view, which is here only for its sums
  std::vector<Place> x;    // from the arena, as all up to dy_from
  Place y, dx, dy, saved, forward_scratch, backward_scratch;
  Place dy_from;                        // copied to dy before backward, if given
  std::size_t dy_bytes = 0;             // of that copy
  Place weight, bias;                   // from the flat buffers
  bool keeps_x = true, keeps_y = true;  // for backward
  bool runs_backward = false;
  std::vector<Sum> sums;  // after backward
};

Executor::Executor(Backend& backend, const Plan& plan, InputDesc input, float label_smoothing,
                   std::int64_t batch, bool training)
    : backend_(backend), batch_(batch), plan_(plan) {
  input.batch = batch;
  input.out = plan.input.shape;
  input.type = plan.type;
  input_ = backend.input(input);

  CrossEntropyDesc loss;
  loss.batch = batch;
  loss.classes = plan.classes;
  loss.label_smoothing = label_smoothing;
  loss.type = plan.type;
  loss.training = false;
  eval_loss_ = backend.cross_entropy(loss);
  if (training) {
    loss.training = true;
    train_loss_ = backend.cross_entropy(loss);
  }

  std::vector<std::unique_ptr<Op>> ops(plan.nodes.size());
  std::vector<NodeNeeds> needs(plan.nodes.size());
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const Node& node = plan.nodes[i];
    if (node.is_view) continue;
    std::vector<ActivationShape> in;
    for (const int x : node.inputs) in.push_back(plan.values[x].shape);
    LayerContext context;
    context.batch = batch;
    context.in = in;
    context.out = plan.values[node.output].shape;
    context.type = plan.type;
    context.training = training;
    context.input_gradient = training && node.input_gradient;
    context.tf32 = plan.tf32;
    for_layer(node.name, "set-up", [&] { ops[i] = node.layer->compile(backend, context); });
    needs[i] = {ops[i]->in_place(),    ops[i]->backward_needs_x(), ops[i]->backward_needs_y(),
                ops[i]->saved_bytes(), ops[i]->scratch_bytes(),    ops[i]->backward_keeps_dy(),
                ops[i]->passes_dy()};
  }

  const MemorySchedule schedule = make_memory_schedule(plan, batch, training, needs);
  arena_bytes_ = schedule.bytes;
  const auto place = [&](int block) {
    return block == kNowhere ? Place{} : Place{schedule.offsets[static_cast<std::size_t>(block)]};
  };
  input_at_ = place(schedule.input).offset;
  logits_at_ = place(schedule.logits).offset;
  metrics_at_ = place(schedule.metrics).offset;
  if (training) dlogits_at_ = place(schedule.dlogits).offset;

  const auto places_of = [&](const std::vector<int>& blocks) {
    std::vector<Place> all;
    for (const int block : blocks) all.push_back(place(block));
    return all;
  };
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const NodePlaces& places = schedule.nodes[i];
    if (!ops[i] && places.sums.empty()) continue;
    Step step;
    step.node = static_cast<int>(i);
    step.name = plan.nodes[i].name;
    step.op = std::move(ops[i]);
    step.x = places_of(places.x);
    step.y = place(places.y);
    step.dx = place(places.dx);
    step.dy = place(places.dy);
    step.dy_from = place(places.dy_from);
    const ActivationShape& out = plan.values[static_cast<std::size_t>(plan.nodes[i].output)].shape;
    step.dy_bytes = static_cast<std::size_t>(batch * out.elements()) * size_of(plan.type);
    step.saved = place(places.saved);
    step.forward_scratch = place(places.forward_scratch);
    step.backward_scratch = place(places.backward_scratch);
    step.keeps_x = needs[i].backward_needs_x;
    step.keeps_y = needs[i].backward_needs_y;
    // What only hands its gradient on has nothing to run where both are the same memory.
    step.runs_backward =
        step.op && places.dy != kNowhere && !(needs[i].passes_dy && places.dx == places.dy);
    for (const GradientSum& sum : places.sums) {
      SumDesc desc;
      desc.batch = batch;
      desc.shape = plan.values[static_cast<std::size_t>(sum.value)].shape.shape;
      desc.inputs = static_cast<int>(sum.parts.size());
      desc.type = plan.type;
      desc.training = false;
      step.sums.push_back({backend.sum(desc), places_of(sum.parts), place(sum.to)});
    }
    for (const int index : plan.nodes[i].params) {
      const Param& param = plan.params[static_cast<std::size_t>(index)];
      const Place where{static_cast<std::size_t>(param.offset) * sizeof(float)};
      if (param.spec.suffix == "weight") {
        step.weight = where;
      } else {
        assert(param.spec.suffix == "bias");
        step.bias = where;
      }
    }
    steps_.push_back(std::move(step));
  }
}

Executor::~Executor() = default;

/// The addresses of the step's parameters, in the types that its operation reads.
void Executor::add_params(const Step& step, const ExecutorBuffers& buffers, OpArgs& args) const {
  args.bias = step.bias.in(buffers.params);
  if (plan_.type != DType::bf16) {
    args.weight = step.weight.in(buffers.params);
    return;
  }
  const auto copy_of = [&](const Place& place) {
    return place.given() ? buffers.params16 + place.offset / sizeof(float) * size_of(DType::bf16)
                         : DevPtr{};
  };
  args.weight = copy_of(step.weight);
  args.bias16 = copy_of(step.bias);
}

InputArgs Executor::input_args(const ExecutorBuffers& buffers, const DeviceBatch& batch) const {
  InputArgs input;
  input.raw = batch.raw;
  input.slots = batch.slots;
  input.ids = batch.ids;
  input.epoch = batch.scalars + offsetof(StepScalars, epoch);
  input.y = buffers.arena + input_at_;
  return input;
}

OpArgs Executor::forward_args(const Step& step, const ExecutorBuffers& buffers) const {
  OpArgs args;
  set_inputs(step.x, buffers.arena, args);
  args.y = step.y.in(buffers.arena);
  add_params(step, buffers, args);
  args.saved = step.saved.in(buffers.arena);
  args.scratch = step.forward_scratch.in(buffers.arena);
  return args;
}

OpArgs Executor::backward_args(const Step& step, const ExecutorBuffers& buffers,
                               GradWrite write) const {
  OpArgs args;
  // The memory of what a kernel said it does not read may be in use by others by now.
  if (step.keeps_x) set_inputs(step.x, buffers.arena, args);
  if (step.keeps_y) args.y = step.y.in(buffers.arena);
  add_params(step, buffers, args);
  args.dy = step.dy.in(buffers.arena);
  args.dx = step.dx.in(buffers.arena);
  args.dweight = step.weight.in(buffers.grads);
  args.dbias = step.bias.in(buffers.grads);
  args.saved = step.saved.in(buffers.arena);
  args.scratch = step.backward_scratch.in(buffers.arena);
  args.write = write;
  return args;
}

CrossEntropyArgs Executor::train_loss_args(const ExecutorBuffers& buffers, const DeviceBatch& batch,
                                           GradWrite write) const {
  CrossEntropyArgs loss;
  loss.logits = buffers.arena + logits_at_;
  loss.labels = batch.labels;
  loss.slots = batch.slots;
  loss.dlogits = buffers.arena + dlogits_at_;
  loss.metrics = metrics_after(buffers.grads, plan_);
  loss.inverse_count = batch.scalars + offsetof(StepScalars, inverse_count);
  loss.write = write;
  return loss;
}

void Executor::forward(const ExecutorBuffers& buffers, const DeviceBatch& batch, const Look& look) {
  const InputArgs input = input_args(buffers, batch);
  input_->run(input);
  if (look) look(-1, input.y, batch_ * plan_.input.shape.elements());
  for (const Step& step : steps_) {
    if (!step.op) continue;
    const OpArgs args = forward_args(step, buffers);
    for_layer(step.name, "forward", [&] { step.op->forward(args); });
    if (!look) continue;
    const Node& node = plan_.nodes[static_cast<std::size_t>(step.node)];
    const Value& value = plan_.values[static_cast<std::size_t>(node.output)];
    look(step.node, args.y, batch_ * value.shape.shape.elements());
  }
}

void Executor::backward(const Step& step, const ExecutorBuffers& buffers, GradWrite write) {
  for_layer(step.name, "backward", [&] {
    if (step.runs_backward) {
      const OpArgs args = backward_args(step, buffers, write);
      if (step.dy_from.given()) {
        backend_.copy(args.dy, step.dy_from.in(buffers.arena), step.dy_bytes);
      }
      step.op->backward(args);
    }
    for (const Step::Sum& sum : step.sums) {
      OpArgs args;
      set_inputs(sum.parts, buffers.arena, args);
      args.y = sum.to.in(buffers.arena);
      sum.op->forward(args);
    }
  });
}

void Executor::train(const ExecutorBuffers& buffers, const DeviceBatch& batch, GradWrite write,
                     const std::function<void(int node)>& after_node) {
  assert(train_loss_ && "this executor was made for evaluation only");
  forward(buffers, batch);
  train_loss_->run(train_loss_args(buffers, batch, write));
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (!step->runs_backward && step->sums.empty()) continue;
    backward(*step, buffers, write);
    if (after_node) after_node(step->node);
  }
}

std::vector<ExecutorCall> Executor::train_calls(const ExecutorBuffers& buffers,
                                                const DeviceBatch& batch) {
  assert(train_loss_ && "this executor was made for evaluation only");
  // A node's products are those of the layers that it runs.
  const auto flops = [&](const Step& step, double LayerRow::*of) {
    double sum = 0;
    for (const int layer : plan_.nodes[static_cast<std::size_t>(step.node)].source_layers) {
      sum += plan_.rows[static_cast<std::size_t>(layer)].*of;
    }
    return sum * static_cast<double>(batch_);
  };
  std::vector<ExecutorCall> calls;
  calls.push_back({"input", 0, [this, args = input_args(buffers, batch)] { input_->run(args); }});
  for (const Step& step : steps_) {
    if (!step.op) continue;
    calls.push_back({step.name + " forward", flops(step, &LayerRow::forward_flops),
                     [&step, args = forward_args(step, buffers)] { step.op->forward(args); }});
  }
  calls.push_back({"loss", 0, [this, args = train_loss_args(buffers, batch, GradWrite::overwrite)] {
                     train_loss_->run(args);
                   }});
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (!step->runs_backward && step->sums.empty()) continue;
    calls.push_back(
        {step->name + " backward", flops(*step, &LayerRow::backward_flops),
         [this, &step = *step, buffers] { backward(step, buffers, GradWrite::overwrite); }});
  }
  return calls;
}

void Executor::evaluate(const ExecutorBuffers& buffers, const DeviceBatch& batch,
                        const EvalOutputs& outputs) {
  forward(buffers, batch);

  CrossEntropyArgs loss;
  loss.logits = buffers.arena + logits_at_;
  loss.labels = batch.labels;
  loss.slots = batch.slots;
  loss.metrics = outputs.metrics ? outputs.metrics : buffers.arena + metrics_at_;
  loss.sample_loss = outputs.sample_loss;
  loss.prediction = outputs.prediction;
  loss.inverse_count = batch.scalars + offsetof(StepScalars, inverse_count);
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
