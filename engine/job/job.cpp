#include "engine/job/job.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "engine/checkpoints/checkpoint.h"
#include "engine/config/replica_checks.h"
#include "engine/data/host_pipeline.h"
#include "engine/data/splits.h"
#include "engine/data/transform_tables.h"
#include "engine/data/transforms.h"
#include "engine/graph/memory_schedule.h"
#include "engine/job/objective.h"
#include "engine/metrics/metric.h"
#include "engine/processes/process_devices.h"
#include "engine/schedules/plateau.h"
#include "kernels/base/divide.h"

namespace dpt {

Range Job::batch_range(std::int64_t index) const {
  const std::int64_t begin = index * spec.data.batch_size;
  return {begin, std::min(begin + spec.data.batch_size, splits.train.size())};
}

std::int64_t Job::eval_batch() const {
  const bool couples = std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const Node& node) {
    return node.coupling && node.coupling->in_evaluation;
  });
  if (couples) return spec.data.batch_size;
  // Who accumulates gradients has no room for more at once.
  return std::min(max_micro_batch, spec.train.accumulate > 1
                                       ? ceil_div(spec.data.batch_size, spec.train.accumulate)
                                       : max_micro_batch);
}

DataRequirements data_requirements(const TrainSpec& spec, const Plan& plan) {
  DataRequirements requirements{{spec.model.input[1], spec.model.input[2], spec.model.input[0]},
                                plan.classes,
                                spec.data.on_bad_sample == OnBadSample::salvage,
                                !divide_transforms(spec.data.transforms.train).host.empty() ||
                                    !divide_transforms(spec.data.transforms.eval).host.empty(),
                                spec.data.val_split.group};
  requirements.applies_orientation = spec.data.exif_orientation == ExifOrientation::apply;
  requirements.leaves_out_files = spec.data.on_bad_sample == OnBadSample::skip;
  return requirements;
}

std::vector<ParamPlace> param_places(const Plan& plan) {
  std::vector<ParamPlace> places;
  for (const Param& param : plan.params) {
    if (!param.is_trained()) continue;
    places.push_back({param.name, param.offset, param.count, param.is_frozen});
  }
  return places;
}

SamplingOptions sampling_of(const TrainSpec& spec) {
  return {static_cast<std::uint64_t>(spec.seed), spec.data.shuffle, spec.data.sampler};
}

Loader::Options loader_options(const Job& job) {
  Loader::Options options;
  options.decoders = job.decoders;
  options.prefetch = static_cast<int>(job.spec.data.prefetch);
  return options;
}

int auto_workers(int cores, const std::vector<DeviceName>& devices) {
  std::int64_t busy = 0;
  for (const DeviceName& device : devices) {
    busy += device.traits().speed_is_threads ? device.threads : 1;
  }
  const auto ranks = std::max<std::int64_t>(1, static_cast<std::int64_t>(devices.size()));
  return static_cast<int>(std::max(ranks, cores - busy));
}

std::chrono::milliseconds stall_timeout(const Job& job) {
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(std::lround(1000 * job.spec.train.stall_timeout)));
}

std::int64_t micro_batch_limit(const Plan& plan, const DeviceTraits& device) {
  // For fewer than 32 samples, reading the weights again and starting the calls costs more than the
  // cache saves (docs/internals/performance.md, Micro-batches); that much memory is there on any
  // machine.
  constexpr std::int64_t kEnough = 32, kMostBytes = std::int64_t{512} << 20, kFewest = 8;
  // What pieces keep between the phases of a pass leaves the cache anyway.
  const std::int64_t per_sample =
      std::max<std::int64_t>(estimate_memory(plan, 1, 0, 0).activations, 1);
  const std::int64_t bytes =
      std::max(device.pass_bytes, std::min(kEnough * per_sample, kMostBytes));
  return std::clamp(bytes / per_sample / kFewest * kFewest, kFewest, device.max_samples);
}

std::string plan_cache_path() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/dpt/cuda-plans.json";
  }
  if (const std::string home = variable("HOME"); !home.empty()) {
    return home + "/.cache/dpt/cuda-plans.json";
  }
  return {};
}

bool Job::always_measures_norm() const {
  const TrainSection& train = spec.train;
  // A step is skipped before it has changed anything, and clipping each value would hide an
  // infinite gradient.
  return train.grad_clip_norm || train.grad_clip_value ||
         train.on_divergence.policy == DivergencePolicy::skip;
}

std::vector<std::string> Job::state_names() const {
  std::vector<std::string> names;
  for (const OptimizerState& state : states) names.push_back(state.name);
  return names;
}

std::vector<std::string> Job::device_names() const {
  return names_of(devices);
}

namespace {

/// What is in a cache is decoded already: the pixels would be others with it than without.
void check_reduced_decoding(const DataSpec& data) {
  for (const std::vector<Variant>* list : {&data.transforms.train, &data.transforms.eval}) {
    for (const Variant& transform : *list) {
      if (data.cache.empty() || transform.type != "RandomResizedCrop" ||
          !transform.as<RandomResizedCropOptions>().reduced_decoding) {
        continue;
      }
      fail(ErrorKind::usage,
           "{}: {}: reduced_decoding has no effect on the images in data.cache: remove one of "
           "the two",
           transform.where.text(), transform.type);
    }
  }
}

}  // namespace

void check_can_skip(const DataSpec& data, const DataSource& train) {
  if (data.on_bad_sample != OnBadSample::skip || train.resident()) return;
  if (train.targets().floats() == 0) return;
  fail(ErrorKind::usage,
       "data.on_bad_sample: skip is for samples with class labels, but those of {} have other "
       "targets or weights: write stop or salvage, and remove the unreadable samples",
       data.dataset.type);
}

void check_monitored(const TrainSpec& spec, std::int64_t val_samples) {
  if (val_samples > 0) return;
  const auto refuse = [](const char* who, const std::string& monitor) {
    fail(ErrorKind::usage,
         "{} monitors {}, but the data set has no validation samples, and none are held out: set "
         "data.val_split",
         who, monitor);
  };
  if (spec.train.early_stopping) {
    refuse("train.early_stopping", spec.train.early_stopping->monitor);
  }
  if (const PlateauOptions* plateau = plateau_of(spec)) {
    refuse("lr_schedule: plateau", plateau->monitor);
  }
}

namespace {

/// The devices of all processes, in the order of the processes, which have been introduced.
void gather_devices(const ProcessGroup& processes, Job& job) {
  int rank = 0;
  for (const ProcessGroup::Member& member : processes.members()) {
    if (rank++ == processes.world().rank) {
      job.own_ranks = {job.ranks(), job.ranks() + static_cast<std::int64_t>(member.devices.size())};
    }
    job.devices.insert(job.devices.end(), member.devices.begin(), member.devices.end());
  }
}

}  // namespace

void measure_top5(Job& job) {
  constexpr std::int64_t kMost = 5;
  if (!has_labels(job.loss.targets.kind) || job.plan.classes <= kMost) return;
  if (job.metrics.sums.size() == kMaxMetricSums) return;
  // Its k is 5 unless a config says otherwise.
  job.spec.metrics.push_back(metric_kinds().with_defaults("top_k"));
  job.metrics = make_metrics(job.spec.metrics, {job.plan.classes, job.spec.loss.type,
                                                job.loss.has_errors, job.loss.targets.kind});
  job.loss.sums = job.metrics.sums;
}

Job make_job(TrainSpec spec, Plan plan, const DataSets& sets, std::string resolved_config,
             ProcessGroup* processes) {
  Job job;
  job.plan = std::move(plan);
  job.evaluation = make_evaluation_plan(job.plan);
  check_sampler(spec.data.sampler, *sets.train);
  check_can_skip(spec.data, *sets.train);
  job.splits = make_splits(sets, spec.data.val_split, static_cast<std::uint64_t>(spec.seed));
  check_monitored(spec, job.splits.val.size());
  const DataRequirements requirements = data_requirements(spec, job.plan);
  const auto seed = static_cast<std::uint64_t>(spec.seed);
  const auto under = [&](const std::shared_ptr<const DataSource>& source,
                         const std::vector<Variant>& transforms) {
    return with_host_transforms(source, transforms, requirements.input, seed);
  };
  const TransformsSpec& transforms = spec.data.transforms;
  check_reduced_decoding(spec.data);
  check_evaluation_transforms(transforms);
  job.evaluated_train = {under(sets.train, transforms.eval), job.splits.train.indices};
  job.splits.train.source = under(sets.train, transforms.train);
  const bool leaves_out = spec.data.on_bad_sample == OnBadSample::skip;
  const bool has_floats = job.splits.train.source->targets().floats() > 0;
  if (leaves_out && !has_floats && !job.splits.train.source->resident()) {
    job.bad_samples = std::make_shared<BadSamples>(spec.data.max_bad_samples);
    job.splits.train.source =
        with_substitutes(job.splits.train.source, job.splits.train.indices, job.bad_samples);
    job.evaluated_substitutes =
        with_substitutes(job.evaluated_train.source, job.splits.train.indices, job.bad_samples);
  }
  job.splits.test.source = under(sets.test, transforms.eval);
  job.splits.val.source =
      job.splits.has_own_val ? under(sets.val, transforms.eval) : job.evaluated_train.source;
  Objective objective = make_objective(spec, job.plan.classes, job.splits);
  job.loss = std::move(objective.loss);
  job.mixed_loss = std::move(objective.mixed_loss);
  job.metrics = std::move(objective.metrics);
  job.optimizer = make_optimizer(spec.optimizer);
  job.update = plan_update(job.optimizer, param_places(job.plan));
  job.states = job.optimizer.states;
  if (spec.train.ema) job.average = kEma;
  if (spec.train.swa) job.average = kSwa;
  if (!job.average.empty()) job.states.push_back({job.average});
  job.train_input =
      make_input_desc(transforms.train, *job.splits.train.source, requirements.input, seed);
  job.eval_input =
      make_input_desc(transforms.eval, *job.evaluated_train.source, requirements.input, seed);
  job.draws = InputDraws(transforms, requirements.input, seed, job.train_loss().targets);
  job.steps_per_epoch = ceil_div(job.splits.train.size(), spec.data.batch_size);
  job.total_steps = job.steps_per_epoch * spec.train.epochs;
  job.schedule = make_lr_schedule(spec, job.optimizer.lr, job.steps_per_epoch);
  job.processes = processes;
  int cores = cpu_info().logical_allowed;
  if (processes) {
    gather_devices(*processes, job);
    cores = own_part_of_cores(cores, processes->world());
  } else {
    job.devices = resolve_devices(spec.devices, most_replicas(spec, job.splits.train.size()));
    job.own_ranks = {0, job.ranks()};
  }
  const std::vector<std::string> names = job.device_names();
  for (const std::string& problem :
       {problem_of_shards(spec, names.size()), problem_of_device_weights(spec, names)}) {
    if (!problem.empty()) throw Error(ErrorKind::usage, problem);
  }
  job.device_weights = spec.device_weights.empty() ? default_device_weights(job.devices)
                                                   : to_device_weights(spec.device_weights);
  job.decoders =
      std::make_shared<DecoderPool>(spec.data.workers > 0 ? static_cast<int>(spec.data.workers)
                                                          : auto_workers(cores, job.own_devices()));
  job.backend_options.exact = spec.train.shards > 0;
  if (spec.train.autotune && !job.backend_options.exact) {
    job.backend_options.plan_cache = plan_cache_path();
  }
  for (const DeviceName& device : job.devices) {
    job.max_micro_batches.push_back(micro_batch_limit(job.plan, device.traits()));
    job.steps_ahead = std::max(job.steps_ahead, device.traits().steps_ahead);
  }
  job.max_micro_batch =
      *std::min_element(job.max_micro_batches.begin(), job.max_micro_batches.end());
  if (processes && job.devices.front().kind == DeviceName::Kind::cpu) {
    // Between processes a network, or the kernel's copies, take a good part of a step
    // (docs/internals/performance.md, Processes): small gradients are worth it, and buckets that
    // end soon; but no more of them than a slow network can bear.
    constexpr std::int64_t kFrom = 256 << 10, kBucket = 1 << 20, kMostBuckets = 16;
    const auto bytes = job.plan.grad_floats() * static_cast<std::int64_t>(sizeof(float));
    job.overlap_from_bytes = kFrom;
    job.bucket_bytes = std::max(kBucket, bytes / kMostBuckets);
  }
  job.resolved_config = std::move(resolved_config);
  job.spec = std::move(spec);
  return job;
}

}  // namespace dpt
