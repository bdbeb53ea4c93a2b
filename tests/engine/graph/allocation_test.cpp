// A pass of the executor itself allocates nothing. Allocations of kernels are tested with the
// kernels.
#include "engine/graph/make_plan.h"
#include "tests/engine/graph/allocation_count.h"
#include "tests/engine/graph/net.h"

namespace dpt::testing {
namespace {

class IdleOp final : public Op {
 public:
  std::size_t scratch_bytes() const override { return 64; }
  void forward(const OpArgs&) override {}
  void backward(const OpArgs&) override {}
  std::string implementation() const override { return "idle"; }
};
class IdleLoss final : public LossOp {
 public:
  void run(const LossArgs&) override {}
};
class IdleInput final : public InputOp {
 public:
  void run(const InputArgs&) override {}
};

/// A backend whose kernels do nothing, so that only the executor can allocate.
class IdleBackend final : public ReferenceBackend {
 public:
  std::unique_ptr<Op> make(const OpDesc&) override { return std::make_unique<IdleOp>(); }
  std::unique_ptr<LossOp> make_loss(const LossOpDesc&) override {
    return std::make_unique<IdleLoss>();
  }
  std::unique_ptr<InputOp> make_input(const InputDesc&) override {
    return std::make_unique<IdleInput>();
  }
};

TEST_CASE("the count counts") {
  start_counting_allocations();
  const std::vector<int> values(10, 1);
  CHECK(stop_counting_allocations() == static_cast<int>(values.size()) / 10);
}

TEST_CASE("neither a training pass nor an evaluation allocates") {
  for (const TrainSpec& spec : {lenet_spec(), odd_net(), branched_net()}) {
    const Plan plan = make_plan(spec);
    const TestBatch batch(plan, 8);
    IdleBackend backend;
    NetRunner runner(backend, plan, start_params(plan), batch);
    start_counting_allocations();
    runner.executor().train(runner.buffers(), runner.batch(), GradWrite::overwrite);
    runner.executor().train(runner.buffers(), runner.batch(), GradWrite::add);
    runner.executor().evaluate(runner.buffers(), runner.batch(), runner.outputs());
    CHECK(stop_counting_allocations() == 0);
  }
}

}  // namespace
}  // namespace dpt::testing
