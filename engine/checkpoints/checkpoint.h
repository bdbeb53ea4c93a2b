// A run on disk: weights, optimizer state and counters. See docs/guide/checkpoints.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/checkpoints/safetensors.h"
#include "engine/graph/plan.h"

namespace dpt {

/// The counters of a run. With weights and optimizer state, everything that the next step depends
/// on: random draws are functions of these.
struct RunState {
  std::int64_t step = 0;       ///< steps done: updates, and skipped ones
  std::int64_t epoch = 0;      ///< epochs completed
  std::int64_t position = 0;   ///< samples of the current epoch already trained on
  std::optional<double> best;  ///< best monitored value so far
  std::int64_t best_step = 0;
  std::string best_monitor;  ///< the monitor of `best`: "val/accuracy max"
  /// Checksum of the best checkpoint's file; empty where that is the file which holds this state.
  std::string best_checksum;
  std::optional<double> early_best;  ///< early stopping: the value to improve on
  std::int64_t bad_evaluations = 0;  ///< early stopping: evaluations since an improvement
  std::string early_monitor;         ///< the monitor of `early_best`
  /// ScheduleSegments of the learning rate, after a change of train.epochs; empty = one.
  std::vector<std::int64_t> schedule_segments;
  // Exponential averages of monitored values (`smoothing`), corrected by their weight; 0 without.
  std::string best_average_of;  ///< what keep_best's is of: "val/accuracy 0.6"
  double best_sum = 0, best_weight = 0;
  double early_sum = 0, early_weight = 0;
  double plateau_sum = 0, plateau_weight = 0;
  // The schedule `plateau`.
  double plateau_scale = 1;            ///< the optimizer's learning rate is multiplied by it
  std::optional<double> plateau_best;  ///< the value to improve on
  std::int64_t plateau_bad = 0;        ///< evaluations since an improvement
  std::int64_t plateau_cooldown = 0;   ///< evaluations to come that do not count
  double epoch_loss_sum = 0;           ///< running sums of the current epoch, for its log line
  double epoch_correct = 0;
  double epoch_weight = 0;         ///< what epoch_loss_sum is divided by
  double epoch_labelled = 0;       ///< what epoch_correct and epoch_sums are divided by
  std::vector<double> epoch_sums;  ///< of the other metrics: StepMetrics::sums from 1 on
  /// One weight per device, measured in the first steps; empty if they were not measured.
  std::vector<std::int64_t> device_weights;
  // Results of the last complete epoch, where they were measured.
  std::optional<double> train_loss, train_accuracy, val_loss, val_accuracy;
  NamedValues train_metrics, val_metrics;  ///< besides loss and accuracy
  std::int64_t val_n = 0;
  // What train.on_divergence has done so far.
  double lr_scale = 1;         ///< the schedule's learning rate is multiplied by it
  std::int64_t rollbacks = 0;  ///< that led to lr_scale
  /// A rollback goes back to this step; -1: to where the process began.
  std::int64_t rollback_step = -1;
  /// A later regular checkpoint, which takes the place of rollback_step once a step after it was
  /// good; -1: there is none.
  std::int64_t rollback_candidate = -1;
  std::int64_t skipped_steps = 0;   ///< of `step`, those that updated nothing
  std::int64_t skipped_in_row = 0;  ///< the newest of them, without an update in between
  std::int64_t epoch_skipped = 0;   ///< samples of the current epoch that are in no running sum
  std::int64_t averaged = 0;        ///< epochs whose weights are in the average of train.swa
};

/// The names of the states that are averages of the weights (train.ema, train.swa). Unlike the
/// optimizer's, they have running statistics too.
inline constexpr const char* kEma = "ema";
inline constexpr const char* kSwa = "swa";
bool is_average(const std::string& state);

/// A whole checkpoint in host memory, in buffer layout.
struct Checkpoint {
  RunState state;
  std::vector<float> params;                                          ///< Plan::param_floats
  std::vector<std::pair<std::string, std::vector<float>>> optimizer;  ///< state name -> flat
  std::string config;                                                 ///< resolved config, YAML
  std::vector<std::string> classes;
  std::optional<TargetKind> targets;  ///< of the data; unset in files of older releases
  std::vector<std::string> features;  ///< DataSource::features
  std::optional<DType> sample_type;   ///< DataSource::type; unset in files of older releases
  std::string dataset_fingerprint;    ///< of the training data
  std::int64_t train_samples = 0;     ///< of the train split; 0 in files of older releases
  std::string test_fingerprint;       ///< of the test data; empty without any
  std::string val_fingerprint;        ///< held-out samples; empty if none or in older files
  std::int64_t shards = 0;            ///< 0 = fast mode
  std::vector<std::string> devices;
  std::string made_by;   ///< library versions and instruction set
  std::string checksum;  ///< of the file that it was loaded from
};

/// The average of the weights, by its name, a buffer like `params`; null where none was kept, or
/// none of an epoch yet.
const std::pair<std::string, std::vector<float>>* average_of(const Checkpoint& checkpoint);

/// Writes it under torchvision's names and layouts; optimizer state as "optim.STATE.PARAM".
/// Refuses non-finite weights with ErrorKind::diverged, and counters that load_checkpoint would
/// refuse with ErrorKind::data. Returns the new file's checksum.
std::string save_checkpoint(const HeldPath& path, const Plan& plan, const Checkpoint& checkpoint);

/// The resolved config and class names stored in a checkpoint, without a plan. Verified as by
/// load_checkpoint.
struct CheckpointHeader {
  std::string config;
  std::vector<std::string> classes;
  std::optional<TargetKind> targets;  ///< unset in files of before 1.6
  std::vector<std::string> features;  ///< names of the columns, of a table; none before 1.7
  std::optional<DType> sample_type;   ///< unset in files of before 1.7
  std::int64_t train_samples = 0;     ///< 0 in files of before 1.8
  RunState state;
  std::int64_t shards = 0;
  std::vector<std::string> devices;
  std::string made_by, dataset_fingerprint, test_fingerprint, val_fingerprint;
  std::string checksum;  ///< as the file says, not compared with its bytes
};
CheckpointHeader read_checkpoint_header(const HeldPath& path);

/// Checkpoint whose file was read completely, once, and verified on the way.
class VerifiedCheckpoint {
 public:
  /// Keeps the tensors that fit `plan`, which must outlive this object. Throws ErrorKind::data for
  /// a damaged file, naming the newest good one next to it.
  VerifiedCheckpoint(const HeldPath& path, const Plan& plan);
  /// Returns the newest checkpoint of a folder that verifies; `warn` gets a line for each that does
  /// not.
  static std::optional<VerifiedCheckpoint> newest_good(
      const std::string& folder, const Plan& plan,
      const std::function<void(const std::string&)>& warn);

  const std::string& path() const { return file_.path(); }
  const CheckpointHeader& header() const { return header_; }
  /// Returns the checkpoint. Throws ErrorKind::data naming what does not fit the plan. REQUIRES:
  /// called once.
  Checkpoint take();

 private:
  VerifiedCheckpoint(SafetensorsFile file, const Plan& plan);
  void read_header();
  void check_param(const std::string& name, const Param& param, std::set<std::string>& seen) const;

  const Plan* plan_;
  SafetensorsFile file_;
  Integrity integrity_ = Integrity::absent;
  CheckpointHeader header_;
  std::vector<float> params_;
  std::map<std::string, std::vector<float>, std::less<>> states_;
};

/// Reads and verifies a checkpoint as VerifiedCheckpoint does.
Checkpoint load_checkpoint(const HeldPath& path, const Plan& plan);

/// "step-00001234.safetensors"
std::string checkpoint_name(std::int64_t step);

/// Paths of the checkpoints of a folder, newest step first, by name only. None if it is missing.
std::vector<std::string> list_checkpoints(const std::string& folder);
/// Returns the same as steps.
std::vector<std::int64_t> list_steps(const HeldPath& folder);

/// The newest one that verifies; empty if there is none. `warn` gets a line for each that does not.
std::string newest_good_checkpoint(const std::string& folder,
                                   const std::function<void(const std::string&)>& warn);

/// Returns the defect of a file as a checkpoint, or an empty text. Reads the whole file unless this
/// process has verified it before.
std::string defect_of(const HeldPath& path);
/// Returns the same for a file whose integrity is already known.
std::string defect_of(const HeldPath& path, Integrity integrity);

/// The step of "step-00001234.safetensors", or -1 for another name.
std::int64_t step_of_checkpoint(std::string_view name);

/// Removes what is older than the newest `keep_last` (at least 1) good ones, and temporary files
/// that a crash left. Reads what stays; Retention (retention.h) remembers.
void apply_retention(const std::string& folder, std::int64_t keep_last);

}  // namespace dpt
