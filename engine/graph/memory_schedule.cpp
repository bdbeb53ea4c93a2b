// Lifetimes of activations, gradients, saved data and scratch over a pass.
#include "engine/graph/memory_schedule.h"

#include <algorithm>
#include <cassert>

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
        gradient_of_(plan.values.size(), kNowhere) {}

  MemorySchedule build() {
    schedule_.nodes.resize(plan_.nodes.size());
    find_last_uses();
    place_values();
    schedule_.metrics = block(sizeof(StepMetrics), loss_step(node_count_), loss_step(node_count_));
    if (training_) place_gradients();
    place_workspaces();
    schedule_.offsets = assign_memory(schedule_.lifetimes, schedule_.bytes);
    return std::move(schedule_);
  }

 private:
  int block(std::size_t bytes, int first, int last) {
    schedule_.lifetimes.push_back({bytes, first, last});
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
  bool runs_backward(const Node& node) const {
    return training_ && (node.input_gradient || !node.params.empty());
  }

  /// The last step at which each value's contents are read under its own name; views and layers
  /// that run in place have names of their own for the same memory.
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

  /// The last use of a block under any of the names that it has so far.
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
      const int x = block_of_[node.inputs[0]];
      // Writing over the input is right only if nobody reads it afterwards, by any name.
      const bool over_input = node.is_view || (needs_[i].in_place && node.layer->is_in_place() &&
                                               last_use_of_block(x) <= forward_step(i));
      const int y =
          over_input ? x : block(bytes_of(node.output), forward_step(i), last_use_[node.output]);
      extend(y, last_use_[node.output]);
      block_of_[node.output] = y;
      schedule_.nodes[i].x = x;
      schedule_.nodes[i].y = y;
    }
    schedule_.logits = block_of_[plan_.logits];
  }

  void place_gradients() {
    const int loss = loss_step(node_count_);
    const int logits = schedule_.logits;
    // The loss writes its gradient over the logits unless a backward kernel wants to see them.
    const bool over_logits = last_use_of_block(logits) <= loss;
    schedule_.dlogits = over_logits ? logits : block(bytes_of(plan_.logits), loss, loss);
    gradient_of_[plan_.logits] = schedule_.dlogits;
    for (int i = node_count_ - 1; i >= 0; --i) {
      const Node& node = plan_.nodes[i];
      if (!runs_backward(node)) continue;
      const int back = backward_step(node_count_, i);
      const int dy = gradient_of_[node.output];
      assert(dy != kNowhere && "a trained node whose output the loss does not see");
      schedule_.nodes[i].dy = dy;
      extend(dy, back);
      if (!node.input_gradient) continue;
      const bool over_dy = node.is_view || needs_[i].in_place;
      const int dx = over_dy ? dy : block(bytes_of(node.inputs[0]), back, back);
      assert(gradient_of_[node.inputs[0]] == kNowhere && "two consumers want to add gradients");
      gradient_of_[node.inputs[0]] = dx;
      schedule_.nodes[i].dx = dx;
    }
  }

  void place_workspaces() {
    for (int i = 0; i < node_count_; ++i) {
      const int front = forward_step(i);
      const int back = backward_step(node_count_, i);
      const bool later = runs_backward(plan_.nodes[i]);
      NodePlaces& places = schedule_.nodes[i];
      if (needs_[i].saved_bytes > 0) {
        places.saved = block(needs_[i].saved_bytes, front, later ? back : front);
      }
      if (needs_[i].scratch_bytes > 0) {
        places.forward_scratch = block(needs_[i].scratch_bytes, front, front);
        if (later) places.backward_scratch = block(needs_[i].scratch_bytes, back, back);
      }
    }
  }

  const Plan& plan_;
  const std::int64_t batch_;
  const bool training_;
  const std::vector<NodeNeeds>& needs_;
  const int node_count_;
  std::vector<int> last_use_;     // per value
  std::vector<int> block_of_;     // per value
  std::vector<int> gradient_of_;  // per value
  MemorySchedule schedule_;
};

}  // namespace

MemorySchedule make_memory_schedule(const Plan& plan, std::int64_t batch, bool training,
                                    const std::vector<NodeNeeds>& needs) {
  return ScheduleBuilder(plan, batch, training, needs).build();
}

MemoryEstimate estimate_memory(const Plan& plan, std::int64_t batch, int optimizer_buffers) {
  // Without a device, assume what most kernels do: read x and y again in backward, except layers
  // that run in place, which need y only.
  std::vector<NodeNeeds> needs;
  for (const Node& node : plan.nodes) {
    NodeNeeds assumed;
    assumed.in_place = node.layer->is_in_place();
    assumed.backward_needs_x = !assumed.in_place;
    needs.push_back(assumed);
  }
  MemoryEstimate estimate;
  estimate.params = plan.param_floats * static_cast<std::int64_t>(sizeof(float));
  estimate.grads = plan.grad_floats() * static_cast<std::int64_t>(sizeof(float));
  estimate.optimizer = optimizer_buffers * estimate.params;
  estimate.activations =
      static_cast<std::int64_t>(make_memory_schedule(plan, batch, true, needs).bytes);
  return estimate;
}

}  // namespace dpt
