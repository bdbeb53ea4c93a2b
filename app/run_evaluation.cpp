#include "app/run_evaluation.h"

#include <utility>

#include "app/catalog.h"
#include "app/command_support.h"
#include "app/model_changes.h"
#include "app/progress_line.h"
#include "engine/spec/read_spec.h"
#include "engine/training/run_report.h"

namespace dpt {

EvaluationSpec spec_for_evaluation(const CheckpointHeader& header, const std::string& path,
                                   std::vector<std::string> overrides, const std::string& devices) {
  std::vector<std::string> changes = changes_of_model(header, path, overrides);
  // With other devices than at training, "auto" is what a reader of results expects, of device
  // weights too.
  overrides.insert(overrides.begin(), "device_weights=auto");
  overrides.push_back("train.shards=0");
  TrainSpec spec =
      load_stored_spec(catalog(), header.config, path, with_devices(std::move(overrides), devices));
  // How today's data could be mixed or sampled for training does not matter.
  spec.data.transforms.batch.clear();
  spec.data.sampler = Sampler::uniform;
  return {std::move(spec), std::move(changes)};
}

EvalResult evaluate_with_progress(const Job& job, const Split& split, const std::string& name,
                                  const std::vector<float>& params) {
  ProgressLine line(job.writes() ? ProgressLine::Shown::terminal : ProgressLine::Shown::nowhere);
  return evaluate_on_ranks(job, split, name, params, [&](std::int64_t done) {
    line.update("evaluated", done, split.size(), noun_of_samples(job));
  });
}

std::string difference_from_run(const std::string& path, const CheckpointHeader& header,
                                const Job& job, const std::string& split) {
  std::string difference =
      difference_of_data("training", header.dataset_fingerprint, *job.splits.train.source);
  const char* effect = "the val split may contain samples that the weights were trained on";
  const TrainSpec run = load_stored_spec(catalog(), header.config, path);
  if (run.data.cache_shorter_side != job.spec.data.cache_shorter_side) {
    const auto text = [](std::int64_t side) {
      return side == 0 ? std::string("full") : std::to_string(side);
    };
    difference =
        fmt::format("expected pictures as the run read them (data.cache_shorter_side={}), found {}",
                    text(run.data.cache_shorter_side), text(job.spec.data.cache_shorter_side));
    effect = "the result does not compare with the run's";
  } else if (split == "test") {
    effect = "the test samples may differ too";
    const std::string of_test =
        difference_of_data("test", header.test_fingerprint, *job.splits.test.source);
    if (!of_test.empty()) {
      difference = of_test;
      effect = "the result does not compare with the run's";
    }
  } else if (difference.empty()) {
    // The split of the training files is a function of these.
    if (run.seed != job.spec.seed || run.data.val_split != job.spec.data.val_split) {
      difference = fmt::format(
          "expected the run's split of the training files (seed={}, data.val_split={}), found "
          "seed={}, data.val_split={}",
          run.seed, text_of(run.data.val_split), job.spec.seed, text_of(job.spec.data.val_split));
    } else {
      difference = difference_of_validation(header.val_fingerprint, job.splits);
    }
  }
  return difference.empty() ? difference : fmt::format("{}; {}", difference, effect);
}

}  // namespace dpt
