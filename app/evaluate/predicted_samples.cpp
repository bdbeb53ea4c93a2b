#include "app/evaluate/predicted_samples.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <utility>

#include "app/base/console.h"
#include "app/evaluate/predict_options.h"
#include "datasets/dataset.h"
#include "datasets/image_files.h"
#include "engine/data/data_sets.h"
#include "engine/data/split.h"
#include "engine/data/splits.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"
#include "kernels/image/image_formats.h"

namespace dpt {
namespace {

/// Returns true if the word is KEY=VALUE and not a file.
bool is_override(const std::string& word) {
  const std::size_t equals = word.find('=');
  std::error_code error;
  return equals != std::string::npos && word.find('/') > equals && !is_image_name(word) &&
         !std::filesystem::exists(word, error);
}

/// Checks that an override locates other samples and does not change how the model sees them.
void check_override(const std::string& word) {
  const std::string key = word.substr(0, word.find('='));
  const auto is_in = [&](const std::string& section) {
    return key == section || key.starts_with(section + ".");
  };
  if (!is_in("data")) {
    fail(ErrorKind::usage,
         "{}: expected a key of the data section, such as data.test.images=new.npy: the model "
         "comes from the checkpoint",
         word);
  }
  for (const char* fixed : {"data.transforms", "data.normalize", "data.batch_size", "data.cache"}) {
    if (!is_in(fixed)) continue;
    fail(ErrorKind::usage, "{}: dpt predict {}", word,
         is_in("data.cache") ? "reads samples from their files: leave it out"
                             : "uses the checkpoint's value: leave it out");
  }
}

std::vector<std::int64_t> all_of(const DataSource& source) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(source.size()));
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  return indices;
}

/// Returns indices of training samples: those that val_split holds out if `split` is "val",
/// otherwise all others.
std::vector<std::int64_t> split_of(const std::shared_ptr<const DataSource>& train,
                                   const std::string& split, const TrainSpec& spec) {
  const ValSplitSpec& held_out = spec.data.val_split;
  if (held_out.stratify || !held_out.group.empty()) {
    fail(ErrorKind::usage,
         "--split {}: data.val_split ({}) needs labels or groups, and predict reads neither. To "
         "predict these samples, use dpt eval RUN --split {} --predictions FILE",
         split, text_of(held_out), split);
  }
  if (split == "val" && !held_out.holds_out()) {
    fail(ErrorKind::data,
         "--split val: the val split is empty (data.val_split is 0, and the data set has no "
         "validation set): set data.val_split to the number of samples to hold out");
  }
  const Splits splits =
      make_splits({train, nullptr}, held_out, static_cast<std::uint64_t>(spec.seed));
  return split == "val" ? splits.val.indices : splits.train.indices;
}

/// Adds the paths on stdin, one per line.
void add_names_on_stdin(std::vector<std::string>& paths, bool is_alone) {
  if (!is_alone) {
    fail(ErrorKind::usage,
         "-: only one process can read paths from stdin: give them as arguments, or run without "
         "--nproc and without a launcher");
  }
  const std::size_t before = paths.size();
  for (std::string line; std::getline(std::cin, line);) {
    if (!line.empty()) paths.push_back(line);
  }
  if (paths.size() == before) {
    fail(ErrorKind::usage, "-: expected paths of images on stdin, one per line, found none");
  }
}

}  // namespace

namespace {

/// Refuses a file that contains many samples, such as a CSV file: only a config can select it. The
/// error names the key for it.
void check_no_data_file(const std::string& word) {
  static constexpr std::array<std::pair<const char*, const char*>, 5> kKeys = {
      {{".csv", "data.test.file"},
       {".tsv", "data.test.file"},
       {".npy", "data.test.images"},
       {".npz", "data.test.images"},
       {".tar", "data.test.shards"}}};
  for (const auto& [extension, key] : kKeys) {
    std::error_code error;
    if (!word.ends_with(extension) || std::filesystem::is_directory(word, error)) continue;
    fail(ErrorKind::usage,
         "{}: expected images, folders, a config or KEY=VALUE, found a file of many samples: write "
         "{}={}",
         word, key, word);
  }
}

}  // namespace

PredictInputs sort_inputs(const PredictOptions& options, bool is_alone) {
  PredictInputs inputs;
  for (const std::string& word : options.inputs) {
    if (word == "-") {
      add_names_on_stdin(inputs.images, is_alone);
    } else if (word.ends_with(".yaml") || word.ends_with(".yml")) {
      if (!inputs.data.config.empty()) {
        fail(ErrorKind::usage, "expected one config, found {} and {}", inputs.data.config, word);
      }
      inputs.data.config = word;
    } else if (is_override(word)) {
      check_override(word);
      inputs.data.overrides.push_back(word);
    } else {
      check_no_data_file(word);
      inputs.images.push_back(word);
    }
  }
  const bool has_data =
      !inputs.data.config.empty() || !inputs.data.overrides.empty() || !options.split.empty();
  if (inputs.images.empty() && !has_data) {
    fail(ErrorKind::usage,
         "expected images, a folder of images, a config (.yaml) whose data section names the "
         "samples, or data.KEY=VALUE or --split to select the run's own samples; {} was taken as "
         "the run",
         options.target);
  }
  if (!inputs.images.empty() && has_data) {
    fail(ErrorKind::usage,
         "{}: expected images or a data set, found both: a config (.yaml), data.KEY=VALUE and "
         "--split are for data sets",
         inputs.images.front());
  }
  return inputs;
}

PredictedPart open_images(const std::vector<std::string>& paths,
                          const DataRequirements& requirements, const ModelOutputs& outputs,
                          bool reports) {
  PredictedPart images;
  images.unreadable = std::make_shared<UnreadableSamples>();
  ListedImages listed = list_images(paths);
  if (reports) {
    for (const std::string& note : listed.notes) say("note: " + note);
  }
  images.source =
      open_image_files(std::move(listed.paths), requirements, outputs, images.unreadable);
  images.indices = all_of(*images.source);
  return images;
}

std::vector<PredictedPart> open_data(const PredictOptions& options, const PredictInputs& inputs,
                                     const TrainSpec& spec, DataRequirements requirements,
                                     const ModelOutputs& outputs, bool reports) {
  const std::string& split = options.split;
  const auto open = [&](DataPart part) {
    PredictedPart opened;
    opened.unreadable = std::make_shared<UnreadableSamples>();
    opened.source =
        open_unlabelled(spec.data.dataset, part, requirements, outputs, opened.unreadable);
    if (reports) {
      for (const std::string& note : opened.unreadable->notes()) say("note: " + note);
    }
    // All parts must have the same type, because they share an input kernel.
    if (opened.source) requirements.type = opened.source->type();
    return opened;
  };
  std::vector<PredictedPart> parts;
  const auto add_all_of = [&](DataPart part) {
    PredictedPart opened = open(part);
    if (!opened.source) return false;
    opened.indices = all_of(*opened.source);
    for (const PredictedPart& before : parts) opened.first_index += before.source->size();
    parts.push_back(std::move(opened));
    return true;
  };
  if (split == "all") add_all_of(DataPart::train);
  const bool has_own_val = (split == "val" || split == "all") && add_all_of(DataPart::val);
  if (split == "train" || (split == "val" && !has_own_val)) {
    parts.push_back(open(DataPart::train));
    parts[0].indices = split_of(parts[0].source, split, spec);
  }
  if (split.empty() || split == "test" || split == "all") {
    if (!add_all_of(DataPart::test) && split == "test") {
      fail(ErrorKind::data, "--split test: the data set has no test samples: choose train or all");
    }
  }
  if (!split.empty()) return parts;
  const auto is_for = [&](const std::string& part) {
    const std::vector<std::string>& words = inputs.data.overrides;
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return word.starts_with(part + ".") || word.starts_with(part + "=");
    });
  };
  const bool has_test = !parts.empty();
  if (has_test && is_for("data.train") && !is_for("data.test")) {
    fail(ErrorKind::usage,
         "data.train was given, but the data set also has test samples, which dpt predict uses by "
         "default: choose with --split train, test or all");
  }
  if (!has_test) {
    add_all_of(DataPart::train);
    add_all_of(DataPart::val);
  }
  if (reports) {
    std::size_t samples = 0;
    for (const PredictedPart& part : parts) samples += part.indices.size();
    say(fmt::format(
        "note: predicting {}: {}", counted(samples, "sample"),
        has_test ? "the test samples of the data set (--split test)"
                 : "all samples of the data set (--split all), because it has no test samples"));
  }
  return parts;
}

}  // namespace dpt
