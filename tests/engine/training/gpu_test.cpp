// Behaviour that occurs only on GPUs: sums overlapped with backward, and steps run as graphs.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/training/stepper.h"
#include "tests/engine/training/run.h"
#include "tests/support/skip.h"

#if __has_include("emulation/control.h")
#include "emulation/control.h"
#include "engine/data/split.h"
#include "engine/graph/memory.h"
#include "engine/job/starting_point.h"
#include "kernels/devices.h"
#endif

using namespace dpt;
using namespace dpt::testing;

namespace {

bool emulated() {
  return cuda_info().unavailable.empty() &&
         cuda_info().devices[0].name.find("mulated") != std::string::npos;
}

}  // namespace

TEST_CASE("gradients summed overlapped with backward, in buckets, follow those summed after it") {
  if (!have_gpu()) return;
  if (!emulated() && cuda_info().devices.size() < 2) {
    skip_test("NCCL needs two GPUs");
    return;
  }
  const std::string devices =
      emulated() ? "devices=[cuda:0,cuda:0,cuda:1]" : "devices=[cuda:0,cuda:1]";
  // There is a layer between those that share weights. The bucket of the shared weights must wait
  // for the first of those layers.
  std::string config = small_config(kSgdWithoutDecay, epochs_on("cuda:0"));
  const std::string fc2 = "    - {type: Linear, name: fc2";
  config.replace(config.find(fc2), 0,
                 R"(    - {type: Linear, name: shared, out_features: 9}
    - {type: Linear, name: between, out_features: 9}
    - {type: Linear, share_weights: shared, out_features: 9}
)");
  Job job = small_job(config, {devices});
  const TempDir plain, folder;
  const FinalState after = train_small(job, plain.path());
  job.placement.overlap_from_bytes = 0;
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{1} << 20}) {
    CAPTURE(bytes);
    job.placement.bucket_bytes = bytes;
    const TempDir each;
    const FinalState overlapped = train_small(job, each.path());
    double worst = 0;
    for (std::size_t i = 0; i < after.params.size(); ++i) {
      worst =
          std::max(worst, std::abs(static_cast<double>(after.params[i]) - overlapped.params[i]));
    }
    // Another order of additions over 20 steps or fewer: see the test of fast mode.
    CHECK(worst < 1e-5);
  }
}

TEST_CASE("buckets cover the gradients from their end, whatever their size") {
  const Job job = small_job(small_config(kSgdWithoutDecay), {cpus(1)});
  for (const std::int64_t bytes : {1, 100, 1000, 3000, 1 << 20}) {
    CAPTURE(bytes);
    std::int64_t end = job.model.plan.grad_floats();
    int node = static_cast<int>(job.model.plan.nodes.size());
    const auto buckets = gradient_buckets(job.model.plan, bytes);
    for (const GradientBucket& bucket : buckets) {
      CHECK(bucket.end == end);
      CHECK(bucket.begin < bucket.end);
      CHECK(bucket.node < node);
      const bool last = &bucket == &buckets.back();
      CHECK((last || (bucket.end - bucket.begin) * 4 >= bytes));
      // Everything in the bucket belongs to this node or a later one.
      for (const Param& param : job.model.plan.params) {
        if (param.offset >= bucket.begin && param.offset < bucket.end) {
          CHECK(param.node >= bucket.node);
        }
      }
      end = bucket.begin;
      node = bucket.node;
    }
    CHECK(end == 0);
  }
}

TEST_CASE("a step on a GPU is one graph; with several replicas, two") {
  if (!have_gpu()) return;
  for (const int replicas : {1, 2}) {
    const Job job = small_job(small_config(kSgdWithoutDecay), {replicas_on("cuda:0", replicas)});
    const StartingPoint start = fresh_start(job);
    run_ranks(job.placement.devices, job.placement.backend_options,
              [&](Backend& backend, Communicator& communicator) {
                Replica replica(backend, communicator, job);
                replica.set_params(start.params);
                Stepper stepper(job, replica, communicator, start.state, [](const StepResult&) {});
                while (!stepper.epoch_done()) stepper.step(false, false);
                stepper.drain();
                CHECK(replica.launches() == (replicas == 1 ? "graph" : "graphs"));
                CHECK(replica.data_placement() == "resident");
              });
  }
}

#if __has_include("emulation/control.h")
TEST_CASE("a step of one replica computes gradients of linear layers in a branch of its graph") {
  const Job job = small_job(small_config(kSgd, epochs_on("cuda:0")), {"devices=[cuda:0]"});
  const StartingPoint start = fresh_start(job);
  run_ranks(job.placement.devices, job.placement.backend_options,
            [&](Backend& backend, Communicator& communicator) {
              Replica replica(backend, communicator, job);
              replica.set_params(start.params);
              Stepper stepper(job, replica, communicator, start.state, [](const StepResult&) {});
              for (int i = 0; i < 3; ++i) stepper.step(false, false);
              stepper.drain();
              REQUIRE(replica.launches() == "graph");
            });
  const emulation::GraphShape step = emulation::last_graph();
  CHECK(step.nodes > 10);
  CHECK(step.longest_path < step.nodes);
}

TEST_CASE("shards are worked on at the same time where there is memory, with the same bits") {
  const std::string config = small_config(kSgd, epochs_on("cuda:0"));
  const auto train = [&](int replicas, int least, int most) {
    const Job job = small_job(config, {replicas_on("cuda:0", replicas), "train.shards=8"});
    const StartingPoint start = fresh_start(job);
    run_ranks(job.placement.devices, job.placement.backend_options,
              [&](Backend& backend, Communicator& communicator) {
                Replica replica(backend, communicator, job);
                replica.set_params(start.params);
                Stepper stepper(job, replica, communicator, start.state, [](const StepResult&) {});
                for (int i = 0; i < 3; ++i) stepper.step(false, false);
                stepper.drain();
                communicator.barrier();
                if (communicator.rank() != 0) return;
                CHECK(replica.branches() >= least);
                CHECK(replica.branches() <= most);
                CHECK(replica.launches() == (replicas == 1 ? "graph" : "graphs"));
              });
    const TempDir folder;
    return train_small(job, folder.path());
  };
  const auto with_memory = [](std::size_t mebibytes) {
    emulation::set_devices(2, mebibytes << 20);
  };
  with_memory(600);
  const FinalState one_by_one = train(1, 1, 1);
  with_memory(2048);
  // Independent nodes of a graph run in this order.
  emulation::set_order({emulation::OrderKind::reverse, 0});
  CHECK((train(1, 8, 8) == one_by_one));
  emulation::set_order({emulation::OrderKind::random, 5});
  CHECK((train(3, 2, 3) == one_by_one));
  emulation::set_order({});
  with_memory(1024);
}

TEST_CASE("a step of ResNet-20 is few kernels and copies") {
  const std::string config = R"(
name: nodes
data: {dataset: synthetic, size: 16, test_size: 2, classes: 10, batch_size: 2}
model: {input: [3, 8, 8], zoo: resnet20}
optimizer: {type: SGD, lr: 0.1, momentum: 0.9}
train: {epochs: 1}
)";
  const Job job = small_job(config, {"devices=[cuda:0]"});
  const StartingPoint start = fresh_start(job);
  run_ranks(
      job.placement.devices, job.placement.backend_options,
      [&](Backend& backend, Communicator& communicator) {
        Replica replica(backend, communicator, job);
        replica.set_params(start.params);
        Stepper stepper(job, replica, communicator, start.state, [](const StepResult&) {});
        const auto work_of_step = [&] {
          const std::size_t before = emulation::work_done();
          stepper.step(false, false);
          stepper.drain();
          return emulation::work_done() - before;
        };
        for (int i = 0; i < 3; ++i) work_of_step();
        CHECK(replica.launches() == "graph");
        CHECK(work_of_step() <= 171);  // the launch of the graph and the copies around it included
      });
}
#endif

TEST_CASE("evaluations on a GPU are graphs too, with the bits of single calls") {
  if (!have_gpu()) return;
  for (const bool staged : {false, true}) {
    for (const int replicas : {1, 2}) {
      CAPTURE(staged);
      CAPTURE(replicas);
      Job job = small_job(small_config(kSgdWithoutDecay), {replicas_on("cuda:0", replicas)});
      if (staged) {
        for (Split* split : {&job.data.splits.train, &job.data.splits.val, &job.data.splits.test}) {
          split->source = std::make_shared<Unresident>(split->source);
        }
      }
      // 23 test samples form micro-batches of 4 and 3; the 7 validation samples do too.
      job.placement.max_micro_batch = 4;
      const StartingPoint start = fresh_start(job);
      std::vector<float> others = start.params;
      for (float& value : others) value *= 1.5F;
      const auto evaluate = [&](Replica& replica, const Split& split) {
        return evaluate_split(replica, job, split, "any").samples;
      };
      const auto equal = [](const SampleResults& a, const SampleResults& b) {
        return a.loss == b.loss && a.prediction == b.prediction && a.label == b.label;
      };
      SampleResults fresh, fresh_val, other;
      run_ranks(job.placement.devices, job.placement.backend_options,
                [&](Backend& backend, Communicator& comm) {
                  const auto first = [&](const std::vector<float>& params, const Split& split) {
                    Replica replica(backend, comm, job);
                    replica.set_params(params);
                    return evaluate(replica, split);
                  };
                  const auto keep = [&](SampleResults& where, SampleResults results) {
                    CHECK_FALSE(results.replayed);
                    if (comm.rank() == 0) where = std::move(results);
                  };
                  keep(fresh, first(start.params, job.data.splits.test));
                  keep(fresh_val, first(start.params, job.data.splits.val));
                  keep(other, first(others, job.data.splits.test));
                });
      CHECK_FALSE(equal(fresh, other));
      run_ranks(job.placement.devices, job.placement.backend_options,
                [&](Backend& backend, Communicator& comm) {
                  Replica replica(backend, comm, job);
                  Stepper stepper(job, replica, comm, start.state, [](const StepResult&) {});
                  const auto check = [&](const Split& split, const SampleResults& expected,
                                         bool replayed) {
                    const SampleResults results = evaluate(replica, split);
                    if (replayed) CHECK(results.replayed);
                    CHECK(equal(results, expected));
                  };
                  replica.set_params(start.params);
                  // Steps and other data run in between, and each micro-batch finds its own
                  // samples. The first step grows the memory for samples, which discards all
                  // captured graphs; staged micro-batches use two slots.
                  for (int round = 0; round < 6; ++round) {
                    CAPTURE(round);
                    check(job.data.splits.test, fresh, round > 3);
                    check(job.data.splits.val, fresh_val, round > 3);
                    stepper.step(false, false);
                    stepper.drain();
                    replica.set_params(start.params);
                    if (stepper.epoch_done()) stepper.finish_epoch();
                  }
                  replica.set_params(others);
                  check(job.data.splits.test, other, true);
                });
    }
  }
}
