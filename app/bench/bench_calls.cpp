// dpt bench CONFIG --calls: times each call of a training step separately, on one device with
// random data. If the device can capture calls, a graph contains many runs of a call, and is
// replayed many times before a single wait. The times then exclude the host.
#include "app/bench/bench_calls.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "app/base/catalog.h"
#include "app/base/command_support.h"
#include "app/base/training_statistics.h"
#include "engine/config/read_spec.h"
#include "engine/graph/executor.h"
#include "engine/job/starting_point.h"
#include "engine/training/trainer.h"
#include "kernels/base/json_text.h"
#include "kernels/devices.h"

namespace dpt {
namespace {

/// One device with the memory of a step: initial parameters, and samples of random bytes.
class StepBench {
 public:
  explicit StepBench(const Job& job)
      : job_(job),
        backend_(make_backend(job.placement.devices.front(), job.placement.backend_options)),
        batch_(std::min(job.batch_range(0).size(), job.placement.max_micro_batch)),
        executor_(*backend_, job.model.plan, job.data.mixed_input(), job.model.train_loss(), batch_,
                  true) {
    const Plan& plan = job.model.plan;
    const InputDesc& input = job.data.train_input;
    const auto samples = static_cast<std::size_t>(batch_);
    const StartingPoint start = fresh_start(job);
    const DevPtr params = filled(start.params);
    if (plan.type == DType::bf16) {
      buffers_.params16 = room(static_cast<std::size_t>(plan.param_floats) * size_of(DType::bf16));
      backend_->to_bf16(buffers_.params16, params, plan.param_floats);
    }
    buffers_.params = params;
    buffers_.grads = filled(std::vector<float>(static_cast<std::size_t>(plan.grad_floats())));
    buffers_.arena = room(executor_.arena_bytes());
    buffers_.kept = room(executor_.kept_bytes());
    std::vector<std::uint8_t> pixels(samples * static_cast<std::size_t>(input.raw.elements()) *
                                     size_of(input.raw_type));
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      // A float is positive and less than 1 if its top byte is 0x3E.
      pixels[i] = static_cast<std::uint8_t>(
          input.raw_type == DType::u8 || i % 4 != 3 ? (i * 2654435761U) >> 24 : 0x3E);
    }
    batch_at_.raw = filled(pixels);
    std::vector<std::int32_t> labels(samples), slots(samples);
    std::vector<std::int64_t> ids(samples);
    std::iota(slots.begin(), slots.end(), 0);
    std::iota(ids.begin(), ids.end(), 0);
    fill_draws(slots, ids);
    for (std::size_t i = 0; i < samples; ++i) {
      labels[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % plan.classes);
    }
    batch_at_.labels = filled(labels);
    const auto floats = static_cast<std::size_t>(job.model.train_loss().targets.floats());
    if (floats > 0) batch_at_.targets = filled(std::vector<float>(samples * floats, 0.5F));
    StepScalars scalars;
    scalars.inverse_count = 1.0F / static_cast<float>(batch_);
    batch_at_.scalars = filled(std::vector<StepScalars>{scalars});
    for (const OptimizerState& state : job.update.optimizer.states) {
      state_.push_back(
          filled(std::vector<float>(static_cast<std::size_t>(plan.param_floats), state.start)));
    }
    // A learning rate of 0 keeps the weights unchanged.
    std::vector<UpdateStep> steps(job.update.plan.groups.size());
    job.update.plan.fill_steps(job.update.optimizer, 0, 2, steps);
    update_steps_ = filled(steps);
    optimizer_ = backend_->optimizer({job.update.optimizer.formula, job.update.plan.ranges});
  }

  std::vector<ExecutorCall> calls() {
    std::vector<ExecutorCall> calls = executor_.train_calls(buffers_, batch_at_);
    calls.push_back({"update", 0, [this] { update(); }});
    return calls;
  }

  /// Returns the duration of one call of `run` in seconds: the minimum over `rounds`.
  double seconds(const std::function<void()>& run, std::int64_t rounds) {
    constexpr int kRuns = 20;
    constexpr double kMinSeconds = 0.01;
    run();
    const auto many = [&] {
      for (int i = 0; i < kRuns; ++i) run();
    };
    const std::unique_ptr<CapturedGraph> graph = backend_->capture(many);
    const auto timed = [&](std::int64_t times) {
      backend_->synchronize();
      const auto begin = std::chrono::steady_clock::now();
      for (std::int64_t i = 0; i < times; ++i) {
        if (graph) {
          backend_->replay(*graph);
        } else {
          many();
        }
      }
      backend_->synchronize();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    // Repeat often enough to make the final wait negligible.
    const auto times = static_cast<std::int64_t>(kMinSeconds / std::max(timed(1), 1e-6)) + 1;
    double best = std::numeric_limits<double>::infinity();
    for (std::int64_t round = 0; round < rounds; ++round) best = std::min(best, timed(times));
    return best / static_cast<double>(times) / kRuns;
  }

  /// Returns the number of samples of a micro-batch in the run's full batches.
  std::int64_t batch() const { return batch_; }
  std::vector<std::string> implementations() const { return executor_.implementations(); }

 private:
  DevPtr room(std::size_t bytes) {
    return memory_.emplace_back(backend_->allocate(bytes, "a benchmark")).ptr();
  }
  template <class T>
  DevPtr filled(const std::vector<T>& values) {
    const DevPtr to = room(values.size() * sizeof(T));
    backend_->upload(to, values.data(), values.size() * sizeof(T));
    backend_->synchronize();
    return to;
  }
  /// Fills in the samples, their erased rectangles and their mixing.
  void fill_draws(std::vector<std::int32_t> slots, std::vector<std::int64_t> ids) {
    const std::size_t lead = job_.data.draws.mixes() ? 1 : 0;
    if (lead > 0) {
      batch_at_.target_slots = filled(slots);
      batch_at_.mix = filled(std::vector<InputMix>{job_.data.draws.mix(0, 0).input});
      slots.insert(slots.begin(), slots.back());
      ids.insert(ids.begin(), ids.back());
    }
    if (job_.data.draws.erases()) {
      std::vector<InputBox> boxes;
      for (const std::int64_t id : ids) boxes.push_back(job_.data.draws.erased(0, id));
      batch_at_.boxes = filled(boxes) + lead * sizeof(InputBox);
    }
    batch_at_.slots = filled(slots) + lead * sizeof(std::int32_t);
    batch_at_.ids = filled(ids) + lead * sizeof(std::int64_t);
  }
  void update() {
    OptimizerArgs args;
    args.params = buffers_.params;
    args.params16 = buffers_.params16;
    args.grads = buffers_.grads;
    std::copy(state_.begin(), state_.end(), args.states.begin());
    args.scalars = batch_at_.scalars;
    args.steps = update_steps_;
    optimizer_->step(args);
  }

  const Job& job_;
  std::unique_ptr<Backend> backend_;
  std::int64_t batch_;
  std::vector<DeviceMemory> memory_;
  Executor executor_;
  ExecutorBuffers buffers_;
  DeviceBatch batch_at_;
  std::vector<DevPtr> state_;
  DevPtr update_steps_;
  std::unique_ptr<OptimizerOp> optimizer_;
};

}  // namespace

int run_bench_calls(const BenchOptions& options) {
  TrainSpec spec =
      load_spec(catalog(), options.config, with_devices(options.overrides, options.devices));
  skip_normalization(spec);
  const Job job = load_job(std::move(spec));
  StepBench bench(job);
  const std::vector<ExecutorCall> calls = bench.calls();
  // Run the whole step first: each call reads the results of the calls before it.
  const auto all = [&] {
    for (const ExecutorCall& call : calls) call.run();
  };
  const double whole = bench.seconds(all, options.rounds);
  nlohmann::ordered_json out;
  out["batch"] = bench.batch();
  out["step_us"] = 1e6 * whole;
  double sum = 0;
  if (!options.json) {
    fmt::print("batch {} on {}, each call timed separately:\n", bench.batch(),
               job.placement.devices.front().text());
  }
  for (const ExecutorCall& call : calls) {
    const double seconds = bench.seconds(call.run, options.rounds);
    sum += seconds;
    out["calls"].push_back({{"name", call.name}, {"us", 1e6 * seconds}, {"flops", call.flops}});
    if (options.json) continue;
    fmt::print("  {:28} {:10.2f} us", call.name, 1e6 * seconds);
    if (call.flops > 0) fmt::print("  {:9.1f} GFLOP/s", call.flops / seconds / 1e9);
    fmt::print("\n");
  }
  if (options.json) {
    out["sum_us"] = 1e6 * sum;
    out["implementations"] = bench.implementations();
    fmt::print("{}\n", json_text(out));
  } else {
    fmt::print("  {:28} {:10.2f} us\n  {:28} {:10.2f} us\n", "sum", 1e6 * sum,
               "whole step, without copies", 1e6 * whole);
  }
  return 0;
}

}  // namespace dpt
