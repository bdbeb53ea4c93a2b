// Small training runs within the test's process.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/base/catalog.h"
#include "app/base/command_support.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/config/read_spec.h"
#include "engine/job/run_ranks.h"
#include "engine/job/starting_point.h"
#include "engine/run/progress.h"
#include "engine/run/run_folder.h"
#include "engine/run/run_log.h"
#include "engine/training/trainer.h"
#include "tests/support/backends.h"
#include "tests/support/events.h"
#include "tests/support/temp_dir.h"

namespace dpt::testing {

constexpr const char* kSgd = "{type: SGD, lr: 0.05, momentum: 0.9, weight_decay: 0.001}";
constexpr const char* kSgdWithoutDecay = "{type: SGD, lr: 0.05, momentum: 0.9}";
constexpr const char* kAdam = "{type: Adam, lr: 0.01}";

/// Returns the config of a net with everything that might depend on the partition: a convolution
/// with padding, pooling, two linear layers, and a crop and flip drawn per sample. 53 samples in
/// batches of 12 give four full batches and a ragged one of 5, smaller than eight shards.
inline std::string small_config(const std::string& optimizer, int epochs = 4) {
  return R"(
name: small
seed: 7
data:
  dataset: synthetic
  size: 60
  test_size: 23
  classes: 4
  val_split: 7
  batch_size: 12
  transforms:
    train: [{type: RandomCrop, size: 8, padding: 2}, {type: RandomHorizontalFlip}, {type: Normalize, mean: [0.4], std: [0.3]}]
    eval: [{type: Normalize, mean: [0.4], std: [0.3]}]
model:
  input: [1, 8, 8]
  layers:
    - {type: Conv2d, name: conv1, out_channels: 5, kernel_size: 3, padding: 1}
    - {type: ReLU}
    - {type: MaxPool2d, kernel_size: 2}
    - {type: Conv2d, name: conv2, out_channels: 7, kernel_size: 3}
    - {type: ReLU}
    - {type: Flatten}
    - {type: Linear, name: fc1, out_features: 9}
    - {type: ReLU}
    - {type: Linear, name: fc2, out_features: 4}
optimizer: )" +
         optimizer + R"(
lr_schedule: {type: cosine, warmup: {steps: 3}}
train: {epochs: )" +
         std::to_string(epochs) + R"(, grad_clip_norm: 1.0, self_check: never}
checkpoint: {every_steps: 1, keep_last: 100}
)";
}

/// Returns the number of epochs of small_config() for this device: an emulated step takes a tenth
/// of a second.
inline int epochs_on(const std::string& device) {
  return is_emulated(device) ? 2 : 4;
}
constexpr int kStepsPerEpoch = 5;

/// True under a sanitizer, which makes a run ten times slower and needs only a few runs.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

inline std::string cpus(int count) {
  return replicas_on("cpu", count);
}

/// The state that the next step depends on.
struct FinalState {
  std::int64_t step = 0;
  std::vector<float> params;
  std::vector<std::pair<std::string, std::vector<float>>> optimizer;
  double test_loss = 0;
  bool operator==(const FinalState&) const = default;
};

inline Job small_job(const std::string& config, std::vector<std::string> overrides) {
  return load_job(load_spec_text(catalog(), config, "small.yaml", overrides));
}

/// Trains from `start` (fresh if null) and returns the state in the folder's newest checkpoint.
inline FinalState train_small(const Job& job, const std::string& folder_path,
                              const StartingPoint* start = nullptr, std::int64_t max_steps = 0) {
  RunFolder folder(folder_path);
  RunLog log(folder.file("metrics.jsonl"));
  Progress progress(true);
  TrainLimits limits;
  if (max_steps > 0) limits.max_steps = max_steps;
  const TrainOutcome outcome =
      train(job, start ? *start : fresh_start(job), limits, folder, log, progress);
  const std::string newest =
      newest_good_checkpoint(folder.checkpoints(), [](const std::string&) {});
  StartingPoint end = start_from_checkpoint(job, newest);
  FinalState state;
  state.step = end.state.step;
  state.params = std::move(end.params);
  state.optimizer = std::move(end.optimizer);
  if (outcome.test) state.test_loss = outcome.test->loss;
  return state;
}

/// Returns the events of that name in the log of a run.
inline std::vector<nlohmann::json> events(const TempDir& folder, const std::string& name) {
  return events(folder.file("metrics.jsonl"), name);
}

/// A source that reads the samples of another one by one, as from files, so that batches are staged
/// ahead.
class Unresident : public DataSource {
 public:
  explicit Unresident(std::shared_ptr<const DataSource> source) : source_(std::move(source)) {}
  std::int64_t size() const override { return source_->size(); }
  SampleShape shape() const override { return source_->shape(); }
  DType type() const override { return source_->type(); }
  const std::vector<std::string>& classes() const override { return source_->classes(); }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    source_->read(index, pixels, label);
  }
  TargetShape targets() const override { return source_->targets(); }
  void read_targets(std::int64_t index, std::span<float> row) const override {
    source_->read_targets(index, row);
  }
  std::string describe(std::int64_t index) const override { return source_->describe(index); }
  std::string fingerprint() const override { return source_->fingerprint(); }

 private:
  std::shared_ptr<const DataSource> source_;
};

}  // namespace dpt::testing
