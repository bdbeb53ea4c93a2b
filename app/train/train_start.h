// The start of dpt train: choice of the run folder, the checkpoint and the initial weights.
#pragma once

#include <string>

#include "app/train/train_options.h"
#include "app/train/weights_source.h"
#include "engine/job/starting_point.h"
#include "engine/processes/process_group.h"
#include "engine/run/progress.h"
#include "engine/run/run_folder.h"
#include "engine/training/trainer.h"

namespace dpt {

/// Throws ErrorKind::usage for options that contradict each other.
void check_options(const TrainOptions& options);

/// Throws ErrorKind::usage if a config without a name is read from a stream: there is no file name
/// to name the run after.
void check_name(const TrainOptions& options, const TrainSpec& spec);

/// Returns the run folder that the options ask for. For the config.yaml of a run, this is the run's
/// own folder, unless the options name another.
std::string choose_folder(const TrainOptions& options, const TrainSpec& spec);

/// Reads the config, with the overrides. A resumed run may be older than a field that the config
/// does not set. Such a field gets the value that keeps the run's behaviour (values_of_run), not
/// the default.
TrainSpec load_train_spec(const TrainOptions& options, ProcessGroup* processes);

/// Opens the folder from choose_folder or, with `--resume never` and without `--run-dir`, the first
/// free one. The files of --verdict and --junit in this folder belong to the run.
RunFolder open_folder(const TrainOptions& options, const TrainSpec& spec, const std::string& path);

/// Removes a run folder that the start created if the start fails before the run has a log.
class UnstartedFolder {
 public:
  explicit UnstartedFolder(RunFolder& folder) : folder_(folder) {}
  ~UnstartedFolder();
  UnstartedFolder(const UnstartedFolder&) = delete;
  /// Keeps the folder from now on: its log will tell how the run ended.
  void keep() { is_kept_ = true; }

 private:
  RunFolder& folder_;
  bool is_kept_ = false;
};

/// Throws ErrorKind::usage if the resolved config would replace a user's config: a config.yaml in
/// `folder` that no run has written.
void check_keeps_config(const TrainOptions& options, const std::string& folder);

/// Throws ErrorKind::usage if evaluations of a new run would be random.
void refuse_random_evaluation(const TrainSpec& spec);

/// Starting point of a run, and the file from which it was read (empty for a fresh start).
struct TrainStart {
  std::string checkpoint;
  std::string other_data;    ///< allowed difference from the run's data, or empty
  std::string weights_file;  ///< name of the weights that a new run starts from; empty = none
  WeightsSource weights;     ///< source of these weights
  StartingPoint point;
};

/// Finds, reads and checks the checkpoint to resume, or the weights to start from. Changes nothing
/// in the run folder, which need not exist. Throws ErrorKind::data or ErrorKind::usage if the file
/// is missing, is damaged or does not fit.
TrainStart load_start(const TrainOptions& options, const Job& job, const std::string& folder,
                      Progress& progress);

/// Adds the SHA-256 of downloaded weights to the config that the run stores, so that a new run with
/// that config starts from the same file or fails. A resumed run keeps the stored hash.
void store_hash_of_weights(const TrainStart& start, Job& job);

}  // namespace dpt
