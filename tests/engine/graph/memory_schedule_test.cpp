// Memory that may be shared, and the total that a pass needs.
#include "engine/graph/memory_schedule.h"

#include "engine/graph/make_plan.h"
#include "engine/graph/memory.h"
#include "tests/engine/graph/net.h"

namespace dpt::testing {
namespace {

std::vector<NodeNeeds> needs_of(const Plan& plan, NodeNeeds each) {
  return std::vector<NodeNeeds>(plan.nodes.size(), each);
}

TEST_CASE("steps: input, forward, loss, backward in reverse") {
  CHECK(forward_step(0) == 1);
  CHECK(forward_step(4) == 5);
  CHECK(loss_step(5) == 6);
  CHECK(backward_step(5, 4) == 7);
  CHECK(backward_step(5, 0) == 11);
}

TEST_CASE("the gradient lies over the logits unless backward reads them") {
  const Plan plan = make_plan(linear_net());
  const MemorySchedule lean =
      make_memory_schedule(plan, 8, true, needs_of(plan, {false, true, false, 0, 0}));
  CHECK(lean.dlogits == lean.logits);
  const MemorySchedule needy =
      make_memory_schedule(plan, 8, true, needs_of(plan, {false, true, true, 0, 0}));
  CHECK(needy.dlogits != needy.logits);
  CHECK(needy.lifetimes[needy.logits].last == backward_step(2, 1));
}

TEST_CASE("views and in-place layers share memory, unless the old values are still needed") {
  const Plan plan = make_plan(ModelSpecBuilder({1, 8, 8})
                                  .add("AvgPool2d", {{"kernel_size", square(2)}})
                                  .add("ReLU")
                                  .add("Flatten")
                                  .linear("a", 3)
                                  .spec());
  REQUIRE(plan.nodes.size() == 4);
  const MemorySchedule shared =
      make_memory_schedule(plan, 2, true, needs_of(plan, {true, false, false, 0, 0}));
  CHECK(shared.nodes[1].x[0] == shared.nodes[1].y);
  CHECK(shared.nodes[2].x[0] == shared.nodes[2].y);
  CHECK(shared.nodes[3].x[0] == shared.nodes[1].y);
  // Pooling computes no input gradient in this net, so its backward does not read its output.
  CHECK(shared.nodes[0].dy == kNowhere);
  CHECK(shared.nodes[3].dx.empty());

  const Plan trained = make_plan(ModelSpecBuilder({1, 8, 8})
                                     .conv("c", 2, 1)
                                     .add("AvgPool2d", {{"kernel_size", square(2)}})
                                     .add("MaxPool2d", {{"kernel_size", square(2)}})
                                     .add("ReLU")
                                     .add("Flatten")
                                     .linear("a", 3)
                                     .spec());
  REQUIRE(trained.nodes.size() == 5);
  std::vector<NodeNeeds> needs = needs_of(trained, {false, true, false, 0, 0});
  needs[2] = {true, false, true, 0, 0};  // ReLU
  const MemorySchedule over = make_memory_schedule(trained, 2, true, needs);
  CHECK(over.nodes[2].x[0] == over.nodes[2].y);
  CHECK(over.nodes[2].dx == std::vector<int>{over.nodes[2].dy});
  CHECK(over.nodes[3].dx == std::vector<int>{over.nodes[3].dy});  // the view
  needs[1].backward_needs_y = true;  // MaxPool2d needs the values that ReLU would overwrite
  const MemorySchedule apart = make_memory_schedule(trained, 2, true, needs);
  CHECK(apart.nodes[2].x[0] != apart.nodes[2].y);
  const MemorySchedule inference = make_memory_schedule(trained, 2, false, needs);
  CHECK(inference.nodes[2].x[0] == inference.nodes[2].y);
}

TEST_CASE("inputs of the gradients of parameters are kept, in chains without shared weights") {
  NodeNeeds parts;
  parts.scratch_bytes = 64;
  parts.backward_parts = true;
  const auto schedule_of = [&](const TrainSpec& spec) {
    const Plan plan = make_plan(spec);
    return make_memory_schedule(plan, 2, true, needs_of(plan, parts));
  };
  const MemorySchedule chain = schedule_of(linear_net());
  REQUIRE(chain.nodes.size() == 2);
  const NodePlaces& last = chain.nodes[1];
  CHECK(last.params_apart);
  for (const int block : {last.x[0], last.dy, last.backward_scratch}) {
    CHECK(chain.lifetimes[block].last == backward_step(2, 0));
  }
  for (const TrainSpec& spec : {branched_net(), normalised_net()}) {
    for (const NodePlaces& places : schedule_of(spec).nodes) CHECK(!places.params_apart);
  }
  const MemorySchedule shared = schedule_of(ModelSpecBuilder({1, 2, 2})
                                                .add("Flatten")
                                                .linear("first", 4)
                                                .linear("a", 4)
                                                .linear("own", 4)
                                                .linear("again", 4)
                                                .shares("a")
                                                .spec());
  CHECK(!shared.nodes[2].params_apart);
  CHECK(shared.nodes[3].params_apart);
  CHECK(!shared.nodes[4].params_apart);
  // Statistics divide the pass into phases, and other memory may be used between them.
  const Plan plan = make_plan(linear_net());
  std::vector<NodeNeeds> needs = needs_of(plan, parts);
  needs[0].couples = true;
  CHECK(!make_memory_schedule(plan, 2, true, needs).nodes[1].params_apart);
}

/// Returns the plan of conv1 -> conv2 -> conv3, whose output is added to that of conv1.
Plan residual_plan() {
  const Options same = {
      {"out_channels", integer(2)}, {"kernel_size", square(3)}, {"padding", square(1)}};
  const TrainSpec spec = ModelSpecBuilder({2, 4, 4})
                             .add("Conv2d", same, "conv1")
                             .add("Conv2d", same, "conv2")
                             .add("Conv2d", same, "conv3")
                             .add("Add", {}, "sum", {"conv3", "conv1"})
                             .add("Flatten")
                             .linear("fc", 3)
                             .spec();
  return make_plan(spec);
}

TEST_CASE("an Add gives its gradient to all inputs; a value of two readers gets the sum") {
  const Plan plan = residual_plan();
  REQUIRE(plan.nodes.size() == 6);
  CHECK_FALSE(plan.values[0].needs_gradient);
  for (std::size_t v = 1; v < plan.values.size(); ++v) CHECK(plan.values[v].needs_gradient);
  std::vector<NodeNeeds> needs = needs_of(plan, {false, true, false, 0, 0, true, false});
  needs[3] = {true, false, false, 0, 0, true, true};
  const MemorySchedule s = make_memory_schedule(plan, 2, true, needs);
  const auto& add = s.nodes[3];
  CHECK(add.dx == std::vector<int>{add.dy, add.dy});
  CHECK(s.nodes[2].dy == add.dx[0]);
  CHECK(s.nodes[2].dy_from == kNowhere);
  // conv2 and the Add read conv1's output. Both gradients live until conv2's backward, and their
  // sum overwrites the one that has no other reader.
  REQUIRE(s.nodes[1].sums.size() == 1);
  const GradientSum& sum = s.nodes[1].sums[0];
  CHECK(sum.parts == std::vector<int>{add.dx[0], s.nodes[1].dx[0]});
  CHECK(sum.to == add.dx[0]);
  CHECK(sum.value == plan.nodes[0].output);
  CHECK(s.nodes[0].dy == sum.to);
  CHECK(s.lifetimes[add.dx[0]].last == backward_step(6, 0));
  // The Add overwrites the output of conv3, which is no longer needed, but not the output of conv1.
  CHECK(add.y == add.x[0]);

  // A kernel that clobbers its gradient gets a copy while others need the original.
  needs[2].keeps_dy = false;
  const MemorySchedule copied = make_memory_schedule(plan, 2, true, needs);
  CHECK(copied.nodes[2].dy_from == copied.nodes[3].dx[0]);
  CHECK(copied.nodes[2].dy != copied.nodes[3].dx[0]);
  CHECK(copied.nodes[1].dy_from == kNowhere);
  CHECK(copied.nodes[1].sums[0].to == copied.nodes[3].dx[0]);
}

TEST_CASE("batch norm completes its gradient in place of a sum of two and of a ReLU") {
  const Options same = {
      {"out_channels", integer(2)}, {"kernel_size", square(3)}, {"padding", square(1)}};
  const Plan plan = make_plan(ModelSpecBuilder({2, 4, 4})
                                  .add("Conv2d", same, "conv1")
                                  .add("BatchNorm2d", {}, "bn1")
                                  .add("ReLU", {}, "relu1")
                                  .add("Conv2d", same, "conv2")
                                  .add("BatchNorm2d", {}, "bn2")
                                  .add("Add", {}, "block1", {"bn2", "relu1"})
                                  .add("ReLU", {}, "relu2")
                                  .add("Conv2d", same, "conv3")
                                  .add("BatchNorm2d", {}, "bn3")
                                  .add("Add", {}, "block2", {"bn3", "relu2"})
                                  .add("ReLU", {}, "relu3")
                                  .add("Flatten")
                                  .linear("fc", 3)
                                  .spec());
  REQUIRE(plan.nodes.size() == 10);
  const int conv2 = 2, bn1 = 1, bn2 = 3, block1 = 4, conv3 = 5, bn3 = 6, block2 = 7;
  std::vector<NodeNeeds> needs = needs_of(plan, {false, true, false, 0, 0, true});
  for (const int block : {block1, block2}) {
    needs[block] = {true, false, true, 0, 0, true};
    needs[block].gates_dy = true;
  }
  for (const int norm : {bn1, bn2, bn3}) {
    needs[norm] = {true, true, false, 16, 32, true};
    needs[norm].couples = true;
  }
  const MemorySchedule apart = make_memory_schedule(plan, 2, true, needs);
  for (const NodePlaces& node : apart.nodes) CHECK(node.dy_parts.empty());
  for (const int norm : {bn1, bn2, bn3}) needs[norm].completes_dy = true;
  const MemorySchedule s = make_memory_schedule(plan, 2, true, needs);

  // In the last block, bn3 takes over only the ReLU, whose gradient has one reader.
  CHECK(apart.nodes[block2].dy != kNowhere);
  CHECK(s.nodes[block2].dy == kNowhere);
  CHECK(s.nodes[bn3].dy_parts == std::vector<int>{apart.nodes[block2].dy});
  CHECK(s.nodes[bn3].dy_gate == s.nodes[block2].y);
  CHECK(s.nodes[bn3].dy == apart.nodes[bn3].dy);
  // In the first block, bn2 takes over the ReLU and the sum of the gradients of the block's two
  // readers.
  REQUIRE(apart.nodes[conv3].sums.size() == 1);
  CHECK(s.nodes[conv3].sums.empty());
  CHECK(s.nodes[block1].dy == kNowhere);
  CHECK(s.nodes[bn2].dy_parts == apart.nodes[conv3].sums[0].parts);
  CHECK(s.nodes[bn2].dy_gate == s.nodes[block1].y);
  // In the stem, bn1 takes over only the sum.
  REQUIRE(apart.nodes[conv2].sums.size() == 1);
  CHECK(s.nodes[conv2].sums.empty());
  CHECK(s.nodes[bn1].dy_parts == apart.nodes[conv2].sums[0].parts);
  CHECK(s.nodes[bn1].dy_gate == kNowhere);
  for (const int norm : {bn1, bn2, bn3}) {
    const NodePlaces& places = s.nodes[norm];
    std::vector<int> read = places.dy_parts;
    if (places.dy_gate != kNowhere) read.push_back(places.dy_gate);
    for (const int block : read) CHECK(s.lifetimes[block].last >= backward_step(10, norm));
  }

  // An evaluation has no gradients. A node that gives several gradients at once adds them itself.
  for (const NodePlaces& node : make_memory_schedule(plan, 2, false, needs).nodes) {
    CHECK(node.dy_parts.empty());
  }
  const Plan both = make_plan(ModelSpecBuilder({2, 4, 4})
                                  .add("Conv2d", same, "conv1")
                                  .add("BatchNorm2d", {}, "bn1")
                                  .add("Multiply", {}, "square", {"bn1", "bn1"})
                                  .add("Flatten")
                                  .linear("fc", 3)
                                  .spec());
  std::vector<NodeNeeds> some = needs_of(both, {false, true, false, 0, 0, true});
  some[bn1].couples = some[bn1].completes_dy = some[2].separate_gradients = true;
  const MemorySchedule own = make_memory_schedule(both, 2, true, some);
  CHECK(own.nodes[2].sums.size() == 1);
  CHECK(own.nodes[bn1].dy_parts.empty());
}

TEST_CASE("separate gradients: a place for each input that asks for one, none of them dy's") {
  const Options same = {
      {"out_channels", integer(2)}, {"kernel_size", square(3)}, {"padding", square(1)}};
  const Plan plan = make_plan(ModelSpecBuilder({2, 4, 4})
                                  .add("Conv2d", same, "conv")
                                  .add("Concat", {}, "concat", {"input", "conv", "conv"})
                                  .add("Flatten")
                                  .linear("fc", 3)
                                  .spec());
  REQUIRE(plan.nodes.size() == 4);
  std::vector<NodeNeeds> needs = needs_of(plan, {false, true, false, 0, 0, true, false});
  needs[1].separate_gradients = true;
  const MemorySchedule s = make_memory_schedule(plan, 2, true, needs);
  const NodePlaces& concat = s.nodes[1];
  REQUIRE(concat.dx.size() == 3);
  CHECK(concat.dx[0] == kNowhere);  // the image
  CHECK(concat.dx[1] != concat.dx[2]);
  for (const int k : {1, 2}) {
    CHECK(concat.dx[k] != kNowhere);
    CHECK(concat.dx[k] != concat.dy);
    CHECK(s.lifetimes[concat.dx[k]].bytes == 2 * 32 * sizeof(float));
  }
  CHECK(s.lifetimes[concat.dy].bytes == 3 * 2 * 32 * sizeof(float));
  // The output of conv is read twice, so its gradient is the sum of two gradients.
  REQUIRE(concat.sums.size() == 1);
  CHECK(concat.sums[0].parts == std::vector<int>{concat.dx[1], concat.dx[2]});
  CHECK(s.nodes[0].dy == concat.sums[0].to);
  const std::vector<int>& parts = concat.sums[0].parts;
  CHECK(std::count(parts.begin(), parts.end(), concat.sums[0].to) == 1);
}

TEST_CASE("more gradients than an operation has inputs are added in turns") {
  const Plan plan = make_plan(branched_net());
  const MemorySchedule s = make_memory_schedule(plan, 2, true, needs_of(plan, {}));
  // Nine heads read the same vector; the first of them is the last to compute its gradient.
  const auto head = std::find_if(plan.nodes.begin(), plan.nodes.end(),
                                 [](const Node& node) { return node.name == "head0"; });
  const auto& sums = s.nodes[head - plan.nodes.begin()].sums;
  REQUIRE(sums.size() == 2);
  CHECK(sums[0].parts.size() == kMaxInputs);
  CHECK(sums[1].parts.size() == 2);
  CHECK(sums[1].parts[0] == sums[0].to);
  CHECK(sums[1].to == sums[0].to);
  // A sum must not overwrite a part that a later sum of the same value reads.
  for (const NodePlaces& node : s.nodes) {
    for (std::size_t k = 1; k < node.sums.size(); ++k) {
      const std::vector<int>& parts = node.sums[k].parts;
      if (node.sums[k].value != node.sums[k - 1].value) continue;
      CHECK(parts[0] == node.sums[k - 1].to);
      CHECK(std::count(parts.begin() + 1, parts.end(), parts[0]) == 0);
    }
  }
  CHECK(std::count(sums[0].parts.begin(), sums[0].parts.end(), sums[0].to) == 1);
}

TEST_CASE("saved data live until backward, scratch for one step") {
  const Plan plan = make_plan(small_lenet());
  const MemorySchedule s =
      make_memory_schedule(plan, 2, true, needs_of(plan, {false, true, true, 100, 200}));
  const int nodes = static_cast<int>(plan.nodes.size());
  const Lifetime saved = s.lifetimes[s.nodes[1].saved];
  CHECK(saved.bytes == 100);
  CHECK(saved.first == forward_step(1));
  CHECK(saved.last == backward_step(nodes, 1));
  const Lifetime front = s.lifetimes[s.nodes[1].forward_scratch];
  CHECK(front.bytes == 200);
  CHECK(front.first == front.last);
  CHECK(front.first == forward_step(1));
  const Lifetime back = s.lifetimes[s.nodes[1].backward_scratch];
  CHECK(back.first == backward_step(nodes, 1));
  CHECK(back.last == back.first);
  // Without training, saved data live for one step, and backward gets no scratch. A kernel that
  // needs 0 bytes gets no memory.
  const MemorySchedule inference =
      make_memory_schedule(plan, 2, false, needs_of(plan, {false, true, true, 100, 200}));
  CHECK(inference.lifetimes[inference.nodes[1].saved].first == forward_step(1));
  CHECK(inference.lifetimes[inference.nodes[1].saved].last == forward_step(1));
  CHECK(inference.nodes[1].forward_scratch != kNowhere);
  CHECK(inference.nodes[1].backward_scratch == kNowhere);
  const MemorySchedule lean =
      make_memory_schedule(plan, 2, true, needs_of(plan, {false, true, true, 0, 0}));
  CHECK(lean.nodes[1].saved == kNowhere);
  CHECK(lean.nodes[1].forward_scratch == kNowhere);
  CHECK(lean.nodes[1].backward_scratch == kNowhere);
}

TEST_CASE("evaluation needs two activations at a time, training less than all there are") {
  const Plan plan = make_plan(lenet_spec());
  std::size_t largest_pair = 0, all = 0;
  for (std::size_t i = 0; i + 1 < plan.values.size(); ++i) {
    const auto bytes = [&](std::size_t v) {
      return static_cast<std::size_t>(256 * 4 * plan.values[v].shape.elements());
    };
    largest_pair = std::max(largest_pair, bytes(i) + bytes(i + 1));
    all += bytes(i);
  }
  const MemorySchedule inference = make_memory_schedule(plan, 256, false, needs_of(plan, {}));
  CHECK(inference.bytes <= largest_pair + 64);
  const MemorySchedule training = make_memory_schedule(plan, 256, true, needs_of(plan, {}));
  CHECK(training.bytes < 2 * all);
  CHECK(training.bytes > inference.bytes);
}

TEST_CASE("the memory estimate counts flat buffers and activations") {
  const Plan plan = make_plan(lenet_spec());
  const MemoryEstimate memory = estimate_memory(plan, 128, 2);
  CHECK(memory.params == plan.param_floats * 4);
  CHECK(memory.grads == (plan.param_floats + 32) * 4);
  CHECK(memory.optimizer == 2 * memory.params);
  CHECK(memory.activations > 128 * 4 * (28 * 28 + 20 * 13 * 13));
  CHECK(memory.total() == memory.params + memory.grads + memory.optimizer + memory.activations);
  CHECK(estimate_memory(plan, 256, 0).activations > memory.activations * 19 / 10);
  // The estimate assumes that backward reads x and y again, but only y if a layer runs in place.
  const Plan plain = make_plan(ModelSpecBuilder({1, 16, 16})
                                   .conv("c", 4, 1)
                                   .add("AvgPool2d", {{"kernel_size", square(1)}})
                                   .add("ReLU")
                                   .add("Flatten")
                                   .linear("a", 3)
                                   .spec());
  REQUIRE(plain.nodes.size() == 4);
  std::vector<NodeNeeds> needs = needs_of(plain, {false, true, true, 0, 0});
  needs[1] = {true, false, true, 0, 0};
  CHECK(estimate_memory(plain, 8, 0).activations ==
        static_cast<std::int64_t>(make_memory_schedule(plain, 8, true, needs).bytes));
  // The input, the outputs of c and of the ReLU, one gradient of the size of such an output, the
  // logits and their gradient.
  CHECK(estimate_memory(plain, 8, 0).activations == 8 * 4 * 256 * (1 + 3 * 4) + 2 * 128);
}

}  // namespace
}  // namespace dpt::testing
