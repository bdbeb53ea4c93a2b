#include "app/train/smoke_job.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "app/base/catalog.h"
#include "app/base/command_support.h"
#include "datasets/dataset.h"
#include "datasets/requirements.h"
#include "datasets/smoke_samples.h"
#include "engine/config/flat_values.h"
#include "engine/config/read_spec.h"
#include "engine/config/show_spec.h"
#include "engine/data/data_sets.h"
#include "engine/data/host_pipeline.h"
#include "engine/graph/make_plan.h"

namespace dpt {
namespace {

/// Returns a batch size with a few samples for each replica or shard and each accumulated part, but
/// at most that of the config.
std::int64_t smoke_batch(const TrainSpec& spec) {
  constexpr std::int64_t kFewest = 8;
  const auto named = static_cast<std::int64_t>(spec.devices.size());
  const std::int64_t parts = std::max(named, spec.train.shards) * spec.train.accumulate;
  return std::min(spec.data.batch_size, std::max(kFewest, 2 * parts));
}

/// Shortens the run, starts it from initial values, and moves its cache to `folder`.
TrainSpec shortened_spec(TrainSpec spec, const std::string& folder,
                         std::vector<std::string>& notes) {
  constexpr std::int64_t kFewSamples = 4;
  if (spec.weights) {
    notes.push_back(fmt::format("weights.file {} is not read: the weights are initial values",
                                spec.weights->file));
    spec.weights.reset();
  }
  if (!spec.data.cache.empty()) spec.data.cache = folder + "/cache";
  spec.data.batch_size = smoke_batch(spec);
  if (ValSplitSpec& split = spec.data.val_split; spec.data.may_validate()) {
    // Synthetic samples have no columns, and too few of each class to be stratified.
    split = {.count = split.count > 0 ? std::min(split.count, kFewSamples) : kFewSamples};
  }
  spec.train.epochs = std::max<std::int64_t>(spec.train.epochs, 2);
  if (spec.train.swa) spec.train.swa->from_epoch = 1;
  spec.checkpoint = {
      .every = 1, .every_steps = 0, .keep_last = 2, .keep_best = spec.checkpoint.keep_best};
  spec.log.every = 1;
  return spec;
}

/// Returns true if the transforms of both lists turn images of this size into the input's size.
bool take_to_input(const TransformsSpec& transforms, Size2 image, SampleShape input) {
  const auto fits = [&](const std::vector<Variant>& list) {
    const auto host = divide_transforms(list).host;
    if (host.empty()) return false;
    const HostPipeline pipeline(host, image, {input.h, input.w}, 0);
    return pipeline.size() == Size2{input.h, input.w};
  };
  return fits(transforms.train) && fits(transforms.eval);
}

/// Returns the shape of samples that all have one size. It is the data set's shape, if known.
/// Otherwise, it is twice the model's input if the transforms turn that into the input, and the
/// input if they do not.
SampleShape raw_shape(const TrainSpec& spec, SampleShape input) {
  if (const auto facts = data_facts(spec.data.dataset.type)) {
    return {facts->input[1], facts->input[2], facts->input[0]};
  }
  const Size2 twice{2 * input.h, 2 * input.w};
  if (!take_to_input(spec.data.transforms, twice, input)) return input;
  return {twice.h, twice.w, input.c};
}

/// Returns the kind of targets. If it is unknown, assumes labels, or one value for a single output.
TargetKind kind_of_targets(const DeclaredSamples& declared, std::int64_t outputs) {
  return declared.targets.value_or(outputs == 1 ? TargetKind::values : TargetKind::class_index);
}

SmokeSamples samples_for(const TrainSpec& spec, const Plan& plan) {
  constexpr std::int64_t kTestSamples = 5;
  const SampleShape input = data_requirements(spec, plan).input;
  const DatasetKind& kind = dataset_kind(spec.data.dataset);
  DeclaredSamples declared;
  declared.targets = TargetKind::class_index;
  declared.type = DType::u8;
  if (kind.declares) declared = kind.declares(spec.data.dataset);

  SmokeSamples samples;
  samples.images = declared.images;
  samples.shape = declared.images ? input : raw_shape(spec, input);
  samples.image = {2 * input.h, 2 * input.w};
  // If the type is unknown, assume numbers (f32) for rows and bytes for images.
  samples.type = declared.type.value_or(input.h * input.w == 1 ? DType::f32 : DType::u8);
  samples.classes = plan.classes;
  samples.targets.kind = kind_of_targets(declared, plan.classes);
  if (samples.targets.kind != TargetKind::class_index) samples.targets.values = plan.classes;
  samples.targets.weighted = declared.weighted;
  samples.train = kSmokeSteps * spec.data.batch_size + spec.data.val_split.count;
  samples.test = kTestSamples;
  return samples;
}

/// Replaces balanced class weights by weights of 1: balancing needs samples of every class, and
/// there may be more classes than synthetic samples.
std::vector<std::string> without_balance(const std::string& config,
                                         std::vector<std::string> overrides,
                                         std::vector<std::string>& notes) {
  const TrainSpec spec = load_spec(catalog(), config, overrides);
  for (const auto& [path, value] : flat_config(show_spec(catalog(), spec), config).values) {
    if (path != "loss.class_weights" || value != "balanced") continue;
    const std::vector<int> ones(static_cast<std::size_t>(make_plan(spec).classes), 1);
    overrides.push_back(fmt::format("loss.class_weights=[{}]", fmt::join(ones, ",")));
    notes.emplace_back("loss.class_weights: balanced is not tested: the weights are 1");
  }
  return overrides;
}

}  // namespace

SmokeJob make_smoke_job(const std::string& config, const std::vector<std::string>& overrides,
                        const std::string& folder) {
  SmokeJob made;
  const std::vector<std::string> words = without_balance(config, overrides, made.notes);
  TrainSpec spec = shortened_spec(load_spec(catalog(), config, words), folder, made.notes);
  Plan plan = make_plan(spec);
  check_outputs(spec, plan.classes);
  const SmokeSamples samples = samples_for(spec, plan);
  const bool salvage = spec.data.on_bad_sample == OnBadSample::salvage;
  DataSets sets = make_up_samples(samples, salvage);
  made.samples = fmt::format(
      "{} synthetic training samples{}, and {} test samples: {}, {}", samples.train,
      spec.data.val_split.count > 0
          ? fmt::format(" ({} of them held out for validation)", spec.data.val_split.count)
          : std::string(),
      samples.test,
      samples.images
          ? fmt::format("PNG images of {}x{} and larger", samples.image.h, samples.image.w)
          : fmt::format("{} of {}", shape_text(samples.shape), name_of(samples.type)),
      text_of(samples.targets.kind));
  made.job = job_of(std::move(spec), std::move(plan), std::move(sets));
  return made;
}

}  // namespace dpt
