#include "app/evaluate/run_evaluation.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "app/base/catalog.h"
#include "app/base/command_support.h"
#include "app/base/progress_line.h"
#include "app/evaluate/model_changes.h"
#include "datasets/dataset.h"
#include "engine/config/read_spec.h"
#include "engine/data/data_sets.h"
#include "engine/data/split.h"
#include "engine/data/splits.h"
#include "engine/graph/make_plan.h"
#include "engine/processes/process_devices.h"
#include "engine/schedules/schedule.h"
#include "engine/training/run_report.h"

namespace dpt {
namespace {

/// Removes a config and the overrides of its data section from `words`, and returns them.
DataToPredict take_data(std::vector<std::string>& words) {
  DataToPredict data;
  data.needs_labels = true;
  const auto is_config = [](const std::string& word) {
    return word.ends_with(".yaml") || word.ends_with(".yml");
  };
  const auto is_path = [&](const std::string& word) {
    return is_config(word) && word.find('=') == std::string::npos;
  };
  for (const std::string& word : words) {
    if (!is_path(word)) continue;
    if (!data.config.empty()) {
      fail(ErrorKind::usage, "expected one config, found {} and {}", data.config, word);
    }
    data.config = word;
  }
  if (data.config.empty()) return data;
  std::erase_if(words, is_path);
  const auto is_of_data = [](const std::string& word) { return word.starts_with("data."); };
  std::copy_if(words.begin(), words.end(), std::back_inserter(data.overrides), is_of_data);
  std::erase_if(words, is_of_data);
  return data;
}

/// Returns true for a loss whose class weights depend on the training samples.
bool has_balanced_weights(const Variant& loss) {
  return std::any_of(loss.table->fields.begin(), loss.table->fields.end(), [&](const Field& field) {
    if (field.zero_word != "balanced") return false;
    const PlainValue value = field.get(loss.options.get());
    const auto* weights = std::get_if<std::vector<double>>(&value);
    return weights && weights->empty();
  });
}

/// Removes parts that only training needs, because they may depend on missing data.
void remove_training(TrainSpec& spec) {
  spec.data.val_split = {};
  spec.train.early_stopping.reset();
  spec.warmup = {};
  spec.lr_schedule = schedule_kinds().with_defaults("constant");
}

/// Returns the parts that may have the samples of a split. The caller uses the first that exists.
std::vector<DataPart> parts_of(const std::string& split, const TrainSpec& spec) {
  std::vector<DataPart> parts;
  if (split.empty() || split == "test") parts.push_back(DataPart::test);
  const bool may_have_val =
      !spec.data.val_split.holds_out() && declares_validation(spec.data.dataset).value_or(true);
  if ((split.empty() || split == "val") && may_have_val) parts.push_back(DataPart::val);
  if (split != "test") parts.push_back(DataPart::train);
  return parts;
}

bool can_open_alone(DataPart part, const TrainSpec& spec, const CheckpointHeader& header,
                    bool any_data) {
  if (header.classes.empty()) return false;
  if (part == DataPart::train) return true;
  const std::string& fingerprint =
      part == DataPart::test ? header.test_fingerprint : header.val_fingerprint;
  return (any_data || !fingerprint.empty()) && !has_balanced_weights(spec.loss);
}

/// Opens one part. Returns nothing if the data set has no such part.
std::optional<EvaluationJob> open_alone(DataPart part, TrainSpec spec, Plan plan,
                                        const CheckpointHeader& header, ProcessGroup* processes) {
  // Training samples depend on val_split only if it holds samples out of them.
  if (part != DataPart::train || !spec.data.val_split.holds_out()) remove_training(spec);
  DataRequirements requirements = data_requirements(spec, plan);
  requirements.known_classes = header.classes;
  requirements.features = header.features;
  requirements.type = header.sample_type;
  requirements.only = part;
  DataSets sets = open_dataset(spec.data.dataset, requirements);
  const auto source = part == DataPart::test  ? sets.test
                      : part == DataPart::val ? sets.val
                                              : sets.train;
  if (!source) return std::nullopt;
  if (!processes || processes->is_first()) say_notes(sets);
  sets.train = source;
  const UsedFiles used = part == DataPart::test  ? UsedFiles::test
                         : part == DataPart::val ? UsedFiles::val
                                                 : UsedFiles::train;
  return EvaluationJob{job_of(std::move(spec), std::move(plan), std::move(sets), processes, used),
                       part == DataPart::test ? "test" : "val", part != DataPart::train};
}

/// Throws if the run had a test set that is now missing, so that val is not used in its place.
void check_has_test_of_run(const EvaluationJob& chosen, const CheckpointHeader& header,
                           bool any_data) {
  if (chosen.split == "test" || header.test_fingerprint.empty() || any_data) return;
  fail(ErrorKind::data,
       "the run has a test set, which is missing now: restore it, say where it is, e.g. "
       "with data.root=DIR, or name the split to evaluate (--split val)");
}

}  // namespace

EvaluationJob load_evaluation(TrainSpec spec, const CheckpointHeader& header,
                              const std::string& split, bool any_data, ProcessGroup* processes) {
  if (processes) processes->introduce(devices_of_process(spec.devices, processes->world()));
  Plan plan = make_plan(spec);
  check_outputs(spec, plan.classes);
  for (const DataPart part : parts_of(split, spec)) {
    if (!can_open_alone(part, spec, header, any_data)) break;
    std::optional<EvaluationJob> opened = open_alone(part, spec, plan, header, processes);
    if (!opened) continue;
    if (split == "train") opened->split = split;
    if (split.empty()) check_has_test_of_run(*opened, header, any_data);
    return std::move(*opened);
  }
  DataRequirements requirements = data_requirements(spec, plan);
  requirements.known_classes = header.classes;
  DataSets sets = open_dataset(spec.data.dataset, requirements);
  if (!processes || processes->is_first()) say_notes(sets);
  EvaluationJob all;
  const UsedFiles used = split.empty()     ? UsedFiles::default_split
                         : split == "test" ? UsedFiles::test
                                           : UsedFiles::train;
  all.job = job_of(std::move(spec), std::move(plan), std::move(sets), processes, used);
  all.split = !split.empty() ? split : all.job.data.splits.test.size() > 0 ? "test" : "val";
  if (split.empty()) check_has_test_of_run(all, header, any_data);
  return all;
}

EvaluationSpec spec_for_evaluation(const CheckpointHeader& header, const std::string& path,
                                   std::vector<std::string> overrides, const std::string& devices) {
  const DataToPredict data = take_data(overrides);
  overrides = without_known_numbers(header, path, std::move(overrides));
  std::vector<std::string> changes = changes_of_model(header, path, overrides);
  // The run's device weights may not fit the devices of this evaluation.
  overrides.insert(overrides.begin(), "device_weights=auto");
  overrides.push_back("train.shards=0");
  overrides = with_devices(std::move(overrides), devices);
  TrainSpec spec = data.config.empty()
                       ? load_stored_spec(catalog(), header.config, path, overrides)
                       : load_spec_to_predict(catalog(), header.config, path, overrides, data);
  if (spec.data.normalize.is_pending()) {
    fail(ErrorKind::usage,
         "data.normalize: auto: an evaluation does not know the mean and standard deviation of the "
         "run's training samples: give them as numbers (dpt data stats prints them)");
  }
  // Evaluations neither mix samples nor use the sampler.
  spec.data.transforms.batch.clear();
  spec.data.sampler = Sampler::uniform;
  return {std::move(spec), std::move(changes), data.config};
}

EvalResult evaluate_with_progress(const Job& job, const Split& split, const std::string& name,
                                  const std::vector<float>& params) {
  ProgressLine line(job.placement.writes() ? ProgressLine::Shown::terminal
                                           : ProgressLine::Shown::nowhere);
  return evaluate_on_ranks(job, split, name, params, [&](std::int64_t done) {
    line.update("evaluated", done, split.size(), noun_of_samples(job));
  });
}

std::string difference_from_run(const std::string& path, const CheckpointHeader& header,
                                const EvaluationJob& of) {
  const Job& job = of.job;
  const std::string& split = of.split;
  std::string difference;
  if (!of.is_alone) {
    difference =
        difference_of_data("training", header.dataset_fingerprint, *job.data.splits.train.source);
  }
  const char* effect =
      split == "train" ? "the train split may contain samples that the weights were not trained on"
                       : "the val split may contain samples that the weights were trained on";
  const TrainSpec run = load_stored_spec(catalog(), header.config, path);
  if (run.data.cache_shorter_side != job.spec.data.cache_shorter_side) {
    const auto text = [](std::int64_t side) {
      return side == 0 ? std::string("full") : std::to_string(side);
    };
    difference =
        fmt::format("expected images as the run read them (data.cache_shorter_side={}), found {}",
                    text(run.data.cache_shorter_side), text(job.spec.data.cache_shorter_side));
    effect = "the result is not comparable with the run's";
  } else if (of.is_alone && split == "val") {
    difference = difference_of_validation(header.val_fingerprint, job.data.splits);
    effect = "the result is not comparable with the run's";
  } else if (split == "test") {
    effect = "the test samples may differ too";
    const std::string of_test =
        difference_of_data("test", header.test_fingerprint, *job.data.splits.test.source);
    if (!of_test.empty()) {
      difference = of_test;
      effect = "the result is not comparable with the run's";
    }
  } else if (difference.empty()) {
    // The split of the training files depends on seed and val_split.
    if (run.seed != job.spec.seed || run.data.val_split != job.spec.data.val_split) {
      difference = fmt::format(
          "expected the run's split of the training files (seed={}, data.val_split={}), found "
          "seed={}, data.val_split={}",
          run.seed, text_of(run.data.val_split), job.spec.seed, text_of(job.spec.data.val_split));
    } else if (split == "val" || run.data.val_split.holds_out()) {
      difference = difference_of_validation(header.val_fingerprint, job.data.splits);
    }
  }
  return difference.empty() ? difference : fmt::format("{}; {}", difference, effect);
}

}  // namespace dpt
