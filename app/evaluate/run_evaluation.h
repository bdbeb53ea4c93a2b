// Evaluates a checkpoint on a split of its run's data, for dpt eval and dpt report.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoints/checkpoint.h"
#include "engine/config/train_spec.h"
#include "engine/data/split.h"
#include "engine/job/job.h"
#include "engine/training/evaluator.h"

namespace dpt {

/// Config of a checkpoint for an evaluation. The caller must refuse or report the `changes` that
/// the overrides make to the model (changes_of_model).
struct EvaluationSpec {
  TrainSpec spec;
  std::vector<std::string> changes;
  std::string data_config;  ///< config whose data is evaluated; empty: the run's data
};

/// Reads the config of a checkpoint. `overrides` may set the location of the data and the devices.
/// A word that ends with .yaml or .yml is a config whose data section replaces the run's. `path` is
/// the checkpoint's file, for messages.
EvaluationSpec spec_for_evaluation(const CheckpointHeader& header, const std::string& path,
                                   std::vector<std::string> overrides, const std::string& devices);

/// Job of an evaluation, and the split to evaluate.
struct EvaluationJob {
  Job job;
  std::string split;
  /// True if only the split was opened: no other part of the data is known, and the job's training
  /// samples are the samples of the split.
  bool is_alone = false;
};

/// Opens the data and creates the job of an evaluation. Opens only the files of the split if the
/// checkpoint contains the classes of the data and, unless `any_data`, the fingerprint of the
/// split. (A loss with balanced class_weights also needs the training samples.) An empty `split`
/// means the test split, or val if there is no test set. Collective over `processes`, if not null.
EvaluationJob load_evaluation(TrainSpec spec, const CheckpointHeader& header,
                              const std::string& split, bool any_data,
                              ProcessGroup* processes = nullptr);

/// Evaluates like evaluate_on_ranks, and shows the progress on a terminal.
EvalResult evaluate_with_progress(const Job& job, const Split& split, const std::string& name,
                                  const std::vector<float>& params);

/// Describes the differences between the job's data and the run's that affect the results on the
/// job's split, and their consequence. Returns an empty string if there are none. Results on
/// different data are not comparable. A different number of training samples also changes the
/// validation split, so that samples on which the weights were trained would count as unseen.
std::string difference_from_run(const std::string& path, const CheckpointHeader& header,
                                const EvaluationJob& of);

}  // namespace dpt
