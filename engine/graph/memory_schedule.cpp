// Lifetimes of activations, gradients, saved data and scratch over a pass.
#include "engine/graph/memory_schedule.h"
#include "engine/graph/memory.h"
#include "engine/graph/param_places.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

namespace dpt {
namespace {

class ScheduleBuilder {
 public:
  ScheduleBuilder(const Plan& plan, std::int64_t batch, bool training,
                  const std::vector<NodeNeeds>& needs)
      : plan_(plan),
        batch_(batch),
        training_(training),
        needs_(needs),
        node_count_(static_cast<int>(plan.nodes.size())),
        last_use_(plan.values.size(), 0),
        block_of_(plan.values.size(), kNowhere),
        gradient_of_(plan.values.size(), kNowhere),
        missing_(plan.values.size(), 0),
        parts_(plan.values.size()) {}

  MemorySchedule build() {
    schedule_.nodes.resize(plan_.nodes.size());
    find_last_uses();
    place_values();
    schedule_.metrics = block(sizeof(StepMetrics), loss_step(node_count_), loss_step(node_count_));
    if (training_) {
      place_gradients();
      for (int i = 0; i < node_count_; ++i) complete_gradient(i);
    }
    place_workspaces();
    if (training_ && is_plain_chain()) keep_for_params();
    assign_places();
    return std::move(schedule_);
  }

 private:
  /// Returns the phase in which a step runs.
  int phase_of(int step) const {
    int phase = 0;
    for (int i = 0; i < node_count_; ++i) {
      if (!needs_[i].couples) continue;
      phase += step >= forward_step(i);
      phase += training_ && step >= backward_step(node_count_, i);
    }
    return phase;
  }

  /// Assigns offsets: in the shared arena for blocks that are used in only one phase, in the
  /// micro-batch's own memory for the others.
  void assign_places() {
    const std::vector<Lifetime>& all = schedule_.lifetimes;
    std::vector<Lifetime> shared = all, own = all;
    for (std::size_t i = 0; i < all.size(); ++i) {
      schedule_.kept.push_back(phase_of(all[i].first) != phase_of(all[i].last));
      (schedule_.kept.back() ? shared : own)[i].bytes = 0;
    }
    schedule_.offsets = assign_memory(shared, schedule_.bytes);
    const std::vector<std::size_t> kept = assign_memory(own, schedule_.kept_bytes);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (schedule_.kept[i]) schedule_.offsets[i] = kept[i];
    }
    schedule_.phases =
        1 + phase_of(training_ ? backward_step(node_count_, 0) : loss_step(node_count_));
  }

  int block(std::size_t bytes, int first, int last) {
    schedule_.lifetimes.push_back({bytes, first, last});
    readers_.push_back(0);
    return static_cast<int>(schedule_.lifetimes.size()) - 1;
  }
  void extend(int which, int last) {
    Lifetime& lifetime = schedule_.lifetimes[which];
    lifetime.last = std::max(lifetime.last, last);
  }
  std::size_t bytes_of(int value) const {
    return static_cast<std::size_t>(batch_ * plan_.values[value].shape.elements()) *
           size_of(plan_.type);
  }
  bool runs_backward(const Node& node) const { return training_ && needs_gradient(node.output); }

  /// Finds the last step in which each value is read under its own name. Views and in-place layers
  /// give other names to the same memory.
  void find_last_uses() {
    for (int i = 0; i < node_count_; ++i) {
      const Node& node = plan_.nodes[i];
      const bool later = runs_backward(node) && !node.is_view;
      const int back = backward_step(node_count_, i);
      for (const int x : node.inputs) {
        use(x, later && needs_[i].backward_needs_x ? back : forward_step(i));
      }
      use(node.output, later && needs_[i].backward_needs_y ? back : forward_step(i));
    }
    use(plan_.logits, loss_step(node_count_));
  }
  void use(int value, int step) { last_use_[value] = std::max(last_use_[value], step); }

  /// Returns the last use of a block under any name that it has had so far.
  int last_use_of_block(int which) const {
    int last = 0;
    for (std::size_t value = 0; value < block_of_.size(); ++value) {
      if (block_of_[value] == which) last = std::max(last, last_use_[value]);
    }
    return last;
  }

  void place_values() {
    block_of_[0] = schedule_.input = block(bytes_of(0), 0, last_use_[0]);
    for (int i = 0; i < node_count_; ++i) {
      const Node& node = plan_.nodes[i];
      NodePlaces& places = schedule_.nodes[i];
      const bool in_place = needs_[i].in_place && node.layer->is_in_place();
      for (const int input : node.inputs) {
        const int x = block_of_[input];
        places.x.push_back(x);
        // An input may be overwritten only if it is not read afterwards, under any name.
        const bool may_take = node.is_view || (in_place && last_use_of_block(x) <= forward_step(i));
        if (places.y == kNowhere && may_take) places.y = x;
      }
      if (places.y == kNowhere) {
        places.y = block(bytes_of(node.output), forward_step(i), last_use_[node.output]);
      }
      extend(places.y, last_use_[node.output]);
      block_of_[node.output] = places.y;
    }
    schedule_.logits = block_of_[plan_.logits];
  }

  void place_gradients() {
    const int loss = loss_step(node_count_);
    const int logits = schedule_.logits;
    // The loss writes its gradient over the logits, unless a backward kernel reads the logits.
    const bool over_logits = last_use_of_block(logits) <= loss;
    schedule_.dlogits = over_logits ? logits : block(bytes_of(plan_.logits), loss, loss);
    gradient_of_[plan_.logits] = schedule_.dlogits;
    readers_[schedule_.dlogits] = 1;
    for (const Node& node : plan_.nodes) {
      for (const int x : node.inputs) missing_[x] += runs_backward(node) && needs_gradient(x);
    }
    for (int i = node_count_ - 1; i >= 0; --i) {
      if (runs_backward(plan_.nodes[i])) place_gradients_of(i);
    }
  }

  void place_gradients_of(int i) {
    const Node& node = plan_.nodes[i];
    const int back = backward_step(node_count_, i);
    NodePlaces& places = schedule_.nodes[i];
    places.dy = gradient_of_[node.output];
    assert(places.dy != kNowhere && "a trained node whose output the loss does not see");
    extend(places.dy, back);
    // Other nodes may still have to read the same gradient: all inputs of an Add share the gradient
    // of its output.
    bool is_shared = --readers_[places.dy] > 0;
    const bool passes_dy = node.is_view || needs_[i].passes_dy;
    if (is_shared && !passes_dy && !needs_[i].keeps_dy) {
      places.dy_from = std::exchange(places.dy, block(bytes_of(node.output), back, back));
      is_shared = false;
    }
    if (!node.input_gradient) return;
    const bool over_dy =
        !needs_[i].separate_gradients && (passes_dy || (needs_[i].in_place && !is_shared));
    int dx = over_dy ? places.dy : kNowhere;
    for (const int x : node.inputs) {
      const bool is_asked_for = needs_gradient(x);
      if (needs_[i].separate_gradients) {
        dx = is_asked_for ? block(bytes_of(x), back, back) : kNowhere;
      } else {
        assert(bytes_of(x) == bytes_of(node.inputs[0]) && "all inputs have the same gradient");
        if (dx == kNowhere) dx = block(bytes_of(x), back, back);
      }
      places.dx.push_back(dx);
      if (!is_asked_for) continue;
      parts_[x].push_back(dx);
      ++readers_[dx];
    }
    for (const int x : node.inputs) {
      if (needs_gradient(x) && --missing_[x] == 0) gradient_of_[x] = add_up(x, back, places.sums);
    }
  }

  bool needs_gradient(int value) const { return plan_.values[value].needs_gradient; }

  /// Returns the place of a value's complete gradient. Adds the sums that compute it to `sums`.
  /// REQUIRES: all parts have been written by step `back`.
  int add_up(int value, int back, std::vector<GradientSum>& sums) {
    std::vector<int> parts = std::move(parts_[value]);
    if (parts.size() == 1) return parts[0];
    for (const int part : parts) {
      --readers_[part];
      extend(part, back);
    }
    std::optional<int> to;
    std::size_t next = 0;
    while (next < parts.size()) {
      GradientSum sum;
      sum.value = value;
      if (to) sum.parts.push_back(*to);
      while (next < parts.size() && sum.parts.size() < kMaxInputs) {
        sum.parts.push_back(parts[next++]);
      }
      // The first sum may overwrite a part that neither another value nor a later sum reads.
      const auto later = parts.begin() + static_cast<std::ptrdiff_t>(next);
      for (const int part : sum.parts) {
        if (!to && readers_[part] == 0 && std::find(later, parts.end(), part) == parts.end()) {
          to = part;
        }
      }
      if (!to) to = block(bytes_of(value), back, back);
      sum.to = *to;
      sums.push_back(std::move(sum));
    }
    readers_[*to] = 1;  // read by the node that computes the value
    return *to;
  }

  /// Lets node `i` complete its own gradient, if its kernel can. The kernel then also does the work
  /// that comes directly before its own backward: the backward of a ReLU, which no longer runs by
  /// itself, and a sum of two gradients.
  void complete_gradient(int i) {
    NodePlaces& places = schedule_.nodes[i];
    if (!needs_[i].completes_dy || places.dy == kNowhere || places.dy_from != kNowhere) return;
    int next = i + 1, incomplete = places.dy;
    if (next < node_count_ && gates(next, places.dy)) {
      NodePlaces& relu = schedule_.nodes[next++];
      places.dy_gate = relu.y;
      incomplete = std::exchange(relu.dy, kNowhere);
      places.dy_parts = {incomplete};
    }
    if (next < node_count_ && plan_.nodes[next].inputs.size() == 1) {
      std::vector<GradientSum>& sums = schedule_.nodes[next].sums;
      if (sums.size() == 1 && sums[0].to == incomplete && sums[0].parts.size() == 2) {
        places.dy_parts = std::move(sums[0].parts);
        sums.clear();
      }
    }
    const int back = backward_step(node_count_, i);
    for (const int part : places.dy_parts) extend(part, back);
    if (places.dy_gate != kNowhere) extend(places.dy_gate, back);
  }

  /// Returns true if the backward of a node, like that of a ReLU, only computes the gradient `dx`
  /// from the node's own.
  bool gates(int node, int dx) const {
    const NodePlaces& places = schedule_.nodes[node];
    return needs_[node].gates_dy && places.dy != kNowhere && places.dy_from == kNowhere &&
           !places.dx.empty() && places.dx[0] == dx && places.sums.empty();
  }

  void place_workspaces() {
    for (int i = 0; i < node_count_; ++i) {
      const int front = forward_step(i);
      const int back = backward_step(node_count_, i);
      const bool later = runs_backward(plan_.nodes[i]);
      NodePlaces& places = schedule_.nodes[i];
      if (needs_[i].saved_bytes > 0) {
        // Statistics are written between the previous step and the node's own step.
        const int first = needs_[i].couples ? front - 1 : front;
        places.saved = block(needs_[i].saved_bytes, first, later ? back : front);
      }
      if (needs_[i].scratch_bytes > 0) {
        places.forward_scratch = block(needs_[i].scratch_bytes, front, front);
        if (later) places.backward_scratch = block(needs_[i].scratch_bytes, back, back);
      }
    }
  }

  /// Returns true if each node reads only the output of the one before it, and none has statistics.
  /// Then each gradient has a single reader, and no sum overwrites any gradient.
  bool is_plain_chain() const {
    int last = 0;
    for (int i = 0; i < node_count_; ++i) {
      const Node& node = plan_.nodes[i];
      if (node.inputs != std::vector{last} || needs_[i].couples) return false;
      last = node.output;
    }
    return true;
  }

  /// Keeps everything from which gradients of parameters are computed in memory until the end of
  /// the pass.
  void keep_for_params() {
    const int end = backward_step(node_count_, 0);
    for (int i = 0; i < node_count_; ++i) {
      NodePlaces& places = schedule_.nodes[i];
      const std::vector<int>& params = plan_.nodes[i].params;
      const bool is_shared = std::any_of(params.begin(), params.end(), [&](int index) {
        return plan_.params[index].node != plan_.params[index].last_node;
      });
      if (!needs_[i].backward_parts || places.dy == kNowhere || is_shared) continue;
      places.params_apart = true;
      for (const int block : {places.x[0], places.dy, places.backward_scratch}) {
        if (block != kNowhere) extend(block, end);
      }
    }
  }

  const Plan& plan_;
  const std::int64_t batch_;
  const bool training_;
  const std::vector<NodeNeeds>& needs_;
  const int node_count_;
  std::vector<int> last_use_;            // per value
  std::vector<int> block_of_;            // per value
  std::vector<int> gradient_of_;         // per value
  std::vector<int> missing_;             // per value: number of parts of its gradient still to come
  std::vector<std::vector<int>> parts_;  // per value: places of the parts so far
  std::vector<int> readers_;             // per block: number of remaining reads as a gradient
  MemorySchedule schedule_;
};

}  // namespace

MemorySchedule make_memory_schedule(const Plan& plan, std::int64_t batch, bool training,
                                    const std::vector<NodeNeeds>& needs) {
  return ScheduleBuilder(plan, batch, training, needs).build();
}

MemoryEstimate estimate_memory(const Plan& plan, std::int64_t batch, int optimizer_buffers,
                               std::int64_t pieces) {
  // Without a device, assume the behaviour of most kernels: backward reads x and y again, or only y
  // in in-place layers, and leaves dy unchanged, so that no copy is needed.
  std::vector<NodeNeeds> needs;
  for (const Node& node : plan.nodes) {
    NodeNeeds assumed;
    assumed.in_place = node.layer->is_in_place();
    assumed.backward_needs_x = !assumed.in_place;
    assumed.keeps_dy = true;
    assumed.separate_gradients = node.inputs.size() > 1 && !assumed.in_place;
    assumed.couples = node.coupling.has_value();
    needs.push_back(assumed);
  }
  MemoryEstimate estimate;
  estimate.params = plan.param_floats * static_cast<std::int64_t>(sizeof(float));
  const auto bytes = static_cast<std::int64_t>(sizeof(float));
  estimate.grads = (plan.grad_floats() - gradient_begin(plan)) * bytes;
  estimate.optimizer = optimizer_buffers * (plan.param_floats - gradient_begin(plan)) * bytes;
  const MemorySchedule schedule = make_memory_schedule(plan, batch, true, needs);
  estimate.activations = static_cast<std::int64_t>(schedule.bytes) +
                         pieces * static_cast<std::int64_t>(schedule.kept_bytes);
  return estimate;
}

}  // namespace dpt
