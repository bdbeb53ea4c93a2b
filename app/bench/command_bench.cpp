// dpt bench CONFIG: times the training loop. With --serve, it answers each line "run N" with the
// duration of N steps in seconds, so that a script can alternate it with other programs.
#include "app/bench/command_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>

#include <fmt/ranges.h>

#include "app/base/catalog.h"
#include "app/base/command_support.h"
#include "app/base/console.h"
#include "app/base/training_statistics.h"
#include "app/base/world_run.h"
#include "app/bench/bench_calls.h"
#include "app/bench/bench_data.h"
#include "app/train/start_weights.h"
#include "app/train/weights_source.h"
#include "engine/checkpoints/weights_file.h"
#include "engine/config/read_spec.h"
#include "engine/job/device_weights.h"
#include "engine/job/job_facts.h"
#include "engine/job/run_ranks.h"
#include "engine/job/starting_point.h"
#include "engine/processes/control_types.h"
#include "engine/training/run_report.h"
#include "engine/training/stepper.h"
#include "engine/training/trainer.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace dpt {
namespace {

/// Runs rounds on all ranks. On rank 0, `next` returns the number of steps of a round, or 0 to end,
/// and `done` receives the seconds and the samples of each round.
void serve_rounds(const Job& job, const StartingPoint& start, bool print_losses,
                  const std::function<std::int64_t()>& next,
                  const std::function<void(double, std::int64_t)>& done) {
  run_ranks(job, [&](Backend& backend, Communicator& communicator) {
    Replica replica(backend, communicator, job);
    replica.set_params(start.params);
    const bool speaks = communicator.rank() == 0;
    std::int64_t samples = 0;
    Stepper stepper(job, replica, communicator, start.state, [&](const StepResult& result) {
      samples += result.metrics.count.count();
      if (speaks && print_losses) {
        fmt::print("loss {} {:.7g}\n", result.step, result.metrics.mean_loss());
      }
    });
    while (true) {
      std::int64_t steps = speaks ? next() : 0;
      communicator.broadcast(std::as_writable_bytes(std::span<std::int64_t>(&steps, 1)), 0);
      if (steps == 0) return;
      communicator.barrier();
      samples = 0;
      const auto begin = std::chrono::steady_clock::now();
      for (std::int64_t i = 0; i < steps; ++i) {
        if (stepper.epoch_done()) {
          stepper.drain();
          stepper.finish_epoch();
        }
        stepper.step(false, false);
      }
      stepper.drain();
      communicator.barrier();
      if (speaks) {
        const auto time = std::chrono::steady_clock::now() - begin;
        done(std::chrono::duration<double>(time).count(), samples);
      }
    }
  });
}

/// Returns the time per sample of each device when it trains alone, in seconds, in the order of the
/// job's devices.
std::vector<double> seconds_per_sample(const BenchOptions& options, const Job& job) {
  std::map<std::string, double> seconds_of;
  for (const DeviceName& device : job.placement.devices) {
    if (seconds_of.contains(device.text())) continue;
    TrainSpec spec =
        load_spec(catalog(), options.config, with_devices(options.overrides, device.text()));
    skip_normalization(spec);
    const Job alone = load_job(std::move(spec));
    std::int64_t round = 0;
    serve_rounds(
        alone, fresh_start(alone), false,
        // The first round warms up.
        [&] { return round++ < 2 ? std::min<std::int64_t>(options.steps, 20) : 0; },
        [&](double seconds, std::int64_t samples) {
          seconds_of[device.text()] = seconds / static_cast<double>(samples);
        });
  }
  std::vector<double> all;
  for (const DeviceName& device : job.placement.devices)
    all.push_back(seconds_of.at(device.text()));
  return all;
}

int bench_in_world(const BenchOptions& options, ProcessGroup* processes) {
  TrainSpec spec =
      load_spec(catalog(), options.config, with_devices(options.overrides, options.devices));
  skip_normalization(spec);
  Job job = load_job(std::move(spec), processes);
  compare_and_connect(job, {{"--steps", std::to_string(options.steps)},
                            {"--rounds", std::to_string(options.rounds)}});
  // Under --serve, the client sets the pace: a pause between its requests is not a stall.
  constexpr double kDay = 24 * 60 * 60;
  job.spec.train.stall_timeout = kDay;
  StartingPoint start = fresh_start(job);
  if (!options.weights.empty()) {
    WeightsSpec weights = job.spec.weights.value_or(WeightsSpec());
    weights.file = weights_source(options.weights).path;
    load_weights(weights, job.model.plan, &job.data.splits.train.source->classes(),
                 start.params.data());
  }

  if (options.serve) {
    if (job.placement.writes()) fmt::print("ready dpt\n");
    flush_results();
    serve_rounds(
        job, start, options.losses,
        []() -> std::int64_t {
          std::string line, word;
          std::int64_t steps = 0;
          if (!std::getline(std::cin, line)) return 0;
          std::istringstream(line) >> word >> steps;
          if (word != "run" || steps < 1) {
            fail(ErrorKind::usage, "--serve: expected 'run N' on stdin, found '{}'", line);
          }
          return steps;
        },
        [](double seconds, std::int64_t) {
          fmt::print("{:.6f}\n", seconds);
          flush_results();
        });
    return 0;
  }

  std::vector<double> rates;
  std::int64_t timed = 0;
  std::int64_t round = 0;
  serve_rounds(
      job, start, options.losses,
      // Run one round more: the first is a warm-up and is not counted.
      [&] { return round++ <= options.rounds ? options.steps : 0; },
      [&](double seconds, std::int64_t samples) {
        if (round == 1) return;
        rates.push_back(static_cast<double>(samples) / seconds);
        timed += samples;
      });
  if (!job.placement.writes()) return 0;
  std::sort(rates.begin(), rates.end());
  const double median = rates[rates.size() / 2];
  DeviceWeights weights;
  if (!processes && has_unlike_kinds(job.placement.devices)) {
    weights = device_weights_for_speed(seconds_per_sample(options, job));
  }
  if (options.json) {
    const std::string more = weights.empty()
                                 ? std::string()
                                 : fmt::format(",\"device_weights\":[{}]", fmt::join(weights, ","));
    fmt::print(
        "{{\"images_per_s\":{:.1f},\"min\":{:.1f},\"max\":{:.1f},\"rounds\":{},\"samples\":{}{}}}"
        "\n",
        median, rates.front(), rates.back(), rates.size(), timed, more);
  } else {
    fmt::print("{:.0f} {}/s (median of {} of {}; {:.0f} to {:.0f}), batch {}, {}\n", median,
               noun_of_samples(job), counted(rates.size(), "round"), counted(options.steps, "step"),
               rates.front(), rates.back(), job.batch_range(0).size(), made_by(job));
    if (!weights.empty()) {
      fmt::print("The speed of each device alone suggests device_weights: [{}]\n",
                 fmt::join(weights, ", "));
    }
  }
  return 0;
}

}  // namespace

int run_bench(const BenchOptions& options) {
  if (options.calls) return run_bench_calls(options);
  if (options.data) return run_bench_data(options);
  const RunIdentity run = identity_of("bench", options.config, options.overrides);
  return run_in_world(options.processes, run,
                      [&](ProcessGroup* processes) { return bench_in_world(options, processes); });
}

}  // namespace dpt
