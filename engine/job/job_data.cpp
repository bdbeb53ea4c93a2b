#include "engine/job/job_data.h"

#include "engine/data/data_sets.h"
#include "engine/data/host_pipeline.h"
#include "engine/data/splits.h"
#include "engine/data/transform_kinds.h"
#include "engine/data/transforms.h"
#include "engine/schedules/plateau.h"
#include "kernels/base/divide.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

/// Refuses reduced decoding with a cache. Cached images are already decoded, so their pixels would
/// differ from those read without a cache.
void check_reduced_decoding(const DataSpec& data) {
  if (data.cache.empty()) return;
  for (const std::vector<Variant>* list : {&data.transforms.train, &data.transforms.eval}) {
    for (const Variant& transform : *list) {
      const TransformKind& kind = transform_kinds().at(transform.type);
      if (!kind.make || !kind.make(transform)->reduces_decoding()) continue;
      fail(ErrorKind::usage,
           "{}: {}: reduced_decoding has no effect on the images in data.cache: remove one of "
           "the two",
           transform.where.text(), transform.type);
    }
  }
}

}  // namespace

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

SamplingOptions sampling_of(const TrainSpec& spec) {
  return {static_cast<std::uint64_t>(spec.seed), spec.data.shuffle, spec.data.sampler};
}

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

JobData make_job_data(const TrainSpec& spec, const Plan& plan, const DataSets& sets) {
  JobData data;
  check_sampler(spec.data.sampler, *sets.train);
  check_can_skip(spec.data, *sets.train);
  const auto seed = static_cast<std::uint64_t>(spec.seed);
  data.splits = make_splits(sets, spec.data.val_split, seed);
  Splits& splits = data.splits;
  check_monitored(spec, splits.val.size());
  const SampleShape input = data_requirements(spec, plan).input;
  const auto under = [&](const std::shared_ptr<const DataSource>& source,
                         const std::vector<Variant>& transforms) {
    return with_host_transforms(source, transforms, input, seed);
  };
  const TransformsSpec& transforms = spec.data.transforms;
  check_reduced_decoding(spec.data);
  check_evaluation_transforms(transforms);
  data.evaluated_train = {under(sets.train, transforms.eval), splits.train.indices};
  splits.train.source = under(sets.train, transforms.train);
  const bool leaves_out = spec.data.on_bad_sample == OnBadSample::skip;
  const bool has_floats = splits.train.source->targets().floats() > 0;
  if (leaves_out && !has_floats && !splits.train.source->resident()) {
    data.bad_samples = std::make_shared<BadSamples>(spec.data.max_bad_samples);
    splits.train.source =
        with_substitutes(splits.train.source, splits.train.indices, data.bad_samples);
    data.evaluated_substitutes =
        with_substitutes(data.evaluated_train.source, splits.train.indices, data.bad_samples);
  }
  splits.test.source = under(sets.test, transforms.eval);
  splits.val.source =
      splits.has_own_val ? under(sets.val, transforms.eval) : data.evaluated_train.source;
  data.train_input = make_input_desc(transforms.train, *splits.train.source, input, seed);
  data.eval_input = make_input_desc(transforms.eval, *data.evaluated_train.source, input, seed);
  data.steps_per_epoch = ceil_div(splits.train.size(), spec.data.batch_size);
  return data;
}

}  // namespace dpt
