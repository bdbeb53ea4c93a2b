// dpt data show: draws samples as training or evaluation sees them.
#include "app/inspect/command_data_show.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "app/base/catalog.h"
#include "app/base/command_support.h"
#include "app/base/console.h"
#include "app/inspect/contact_sheet.h"
#include "datasets/dataset.h"
#include "engine/config/read_spec.h"
#include "engine/config/secrets.h"
#include "engine/data/bad_samples.h"
#include "engine/data/data_sets.h"
#include "engine/data/host_pipeline.h"
#include "engine/data/split.h"
#include "engine/data/splits.h"
#include "engine/data/transforms.h"
#include "engine/graph/make_plan.h"
#include "engine/graph/plan.h"
#include "engine/job/job.h"
#include "kernels/image/encode_png.h"

namespace dpt {
namespace {

/// Returns the first samples of the epoch if `training` is given; otherwise samples spread evenly
/// over the split.
EpochOrder chosen_samples(const Split& split, const TrainSpec* training, std::int64_t epoch,
                          std::int64_t count) {
  EpochOrder chosen;
  if (training) {
    SamplingOptions sampling = sampling_of(*training);
    sampling.shuffle = true;
    const EpochOrder order = Sampling(split, sampling).epoch(epoch);
    chosen = {order.indices, order.draw_keys()};
    chosen.indices.resize(static_cast<std::size_t>(count));
    chosen.keys.resize(static_cast<std::size_t>(count));
    return chosen;
  }
  for (std::int64_t k = 0; k < count; ++k) {
    chosen.indices.push_back(split.indices[k * split.size() / count]);
  }
  chosen.keys = chosen.indices;
  return chosen;
}

std::string class_of(const DataSource& source, std::int32_t label) {
  if (!has_labels(source.targets().kind)) return "";
  return source.classes()[label];
}

/// Returns the index of the sample that is shown in place of `index`: the first one from `index` on
/// that is not in `replaced`. REQUIRES: not all samples of the split are in `replaced`.
std::int64_t shown_index(const Split& split, const LeftOutSamples& replaced, std::int64_t index) {
  while (replaced.contains(index)) index = next_index(split.indices, index);
  return index;
}

void print_table(const DataSource& source, const std::vector<SheetImage>& images,
                 std::int64_t columns, std::int64_t versions) {
  fmt::print("{:>4} {:>6} {:>10}  {:<20}  {}\n", "row", "column", "index", "class", "sample");
  for (std::size_t i = 0; i < images.size(); i += static_cast<std::size_t>(versions)) {
    const SheetImage& image = images[i];
    const auto at = static_cast<std::int64_t>(i);
    fmt::print("{:>4} {:>6} {:>10}  {:<20}  {}\n", at / columns + 1, at % columns + 1, image.index,
               printable(class_of(source, image.label)),
               printable(hide_secrets(source.describe(image.index))));
  }
}

}  // namespace

int run_data_show(const DataShowOptions& options) {
  std::error_code error;
  const std::string extension = std::filesystem::path(options.out).extension().string();
  if (!extension.empty() && extension != ".png" && extension != ".PNG") {
    fail(ErrorKind::usage,
         "--out {}: the image is a PNG: expected a name that ends in .png, found {}", options.out,
         extension);
  }
  if (!options.overwrite && std::filesystem::exists(options.out, error)) {
    fail(ErrorKind::usage, "--out {}: the file exists; give another name, or --overwrite",
         options.out);
  }
  const TrainSpec spec = load_spec(catalog(), options.config, options.overrides);
  const DataRequirements requirements = data_requirements(spec, make_plan(spec));
  DataSets sets = open_dataset(spec.data.dataset, requirements);
  say_notes(sets);
  sets = with_caches(std::move(sets), spec.data,
                     options.split == "test" ? UsedFiles::test : UsedFiles::train,
                     MissingCache::leave);
  const auto seed = static_cast<std::uint64_t>(spec.seed);
  Splits splits = make_splits(sets, spec.data.val_split, seed);
  const bool is_train = options.split == "train";
  const Split& split = is_train ? splits.train : options.split == "val" ? splits.val : splits.test;
  if (!split.source || split.size() == 0) {
    fail(ErrorKind::data, "--split {0}: the {0} split is empty{1}", options.split,
         options.split == "val" ? " (data.val_split is 0, and the data set has none)" : "");
  }
  const std::vector<Variant>& transforms =
      is_train ? spec.data.transforms.train : spec.data.transforms.eval;
  auto source = with_host_transforms(split.source, transforms, requirements.input, seed);
  std::shared_ptr<BadSamples> bad;
  const auto replaced = std::make_shared<LeftOutSamples>();
  if (spec.data.on_bad_sample == OnBadSample::skip && !source->resident()) {
    bad = std::make_shared<BadSamples>(spec.data.max_bad_samples);
    source = with_substitutes(source, split.indices, bad, replaced);
  }
  const InputDesc input = make_input_desc(transforms, *source, requirements.input, seed);
  check_evaluation_transforms(spec.data.transforms);
  const SampleShape out = input.out;
  if (out.h * out.w < 2) {
    fail(ErrorKind::usage, "expected images, found samples of {} numbers, which cannot be drawn",
         out.c);
  }
  if (out.c != 1 && out.c != 3) {
    fail(ErrorKind::usage,
         "expected images of 1 or 3 channels, found samples of {}x{} with {} channels", out.h,
         out.w, out.c);
  }
  const std::int64_t versions = options.versions;
  const std::int64_t wanted = options.samples > 0 ? options.samples : versions > 1 ? 8 : 32;
  const std::int64_t count = std::min(wanted, split.size());
  std::int64_t columns =
      options.columns > 0 ? options.columns : std::max<std::int64_t>(8, versions);
  // Keep the versions of a sample in one row.
  columns = std::clamp(columns / versions, std::int64_t{1}, count) * versions;
  std::vector<SheetImage> images;
  const EpochOrder chosen =
      chosen_samples(split, is_train ? &spec : nullptr, options.epoch - 1, count);
  for (std::size_t k = 0; k < chosen.indices.size(); ++k) {
    for (std::int64_t v = 0; v < versions; ++v) {
      images.push_back({chosen.indices[k], options.epoch - 1 + v, chosen.keys[k], 0, {}});
    }
  }
  double low = 0, high = 1;
  const InputDraws draws(is_train ? spec.data.transforms : TransformsSpec{}, out, seed);
  draw_samples(*source, input, draws, images, low, high);
  for (SheetImage& image : images) image.index = shown_index(split, *replaced, image.index);
  for (const std::string& problem : bad ? bad->take_new() : std::vector<std::string>()) {
    say(fmt::format("warning: left out: {} (the sample after it is shown in its place)", problem));
  }
  std::vector<std::vector<std::string>> captions;
  for (const SheetImage& image : images) {
    captions.push_back({});
    const std::string label = class_of(*source, image.label);
    if (!label.empty()) captions.back().push_back(label);
    captions.back().push_back(versions > 1 ? fmt::format("{} ep {}", image.index, image.epoch + 1)
                                           : fmt::format("{}", image.index));
  }
  write_results(options.out, encode_png(contact_sheet(images, captions, columns)));
  fmt::print("{}: {} of {} {} samples, epoch {}{}\n", printable(options.out), count, split.size(),
             options.split, options.epoch,
             versions > 1 ? fmt::format(" to {}", options.epoch + versions - 1) : "");
  if (is_train && draws.mixes()) {
    fmt::print("the samples are shown as they are before data.transforms.batch mixes them\n");
  }
  if (source->type() == DType::f32) fmt::print("black is {:.6g}, white is {:.6g}\n", low, high);
  print_table(*source, images, columns, versions);
  return 0;
}

}  // namespace dpt
