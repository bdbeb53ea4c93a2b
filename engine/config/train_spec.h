// TrainSpec: a config file as plain structs, with defaults filled in and every value checked.
// Frozen after reading. The kinds of layers, losses, data sets, transforms, optimizers and
// schedules are not known here: their tables are passed in as a Catalog (see app/base/catalog.cpp),
// so that this folder does not depend on them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/fields.h"

namespace dpt {

// Choices of a config and their names.

/// Direction of better values of a monitor: max if greater values are better.
enum class Direction : std::uint8_t { max, min };
constexpr auto enum_names(Direction) {
  return std::to_array<EnumName<Direction>>({{Direction::max, "max"}, {Direction::min, "min"}});
}

/// Named numbers, in order.
using NamedValues = std::vector<std::pair<std::string, double>>;

enum class Precision : std::uint8_t { fp32, tf32, bf16 };
constexpr auto enum_names(Precision) {
  return std::to_array<EnumName<Precision>>(
      {{Precision::fp32, "fp32"}, {Precision::tf32, "tf32"}, {Precision::bf16, "bf16"}});
}

/// Choice of the kernels to check before the first step; automatic: those not checked before.
enum class SelfCheck : std::uint8_t { automatic, always, never };
constexpr auto enum_names(SelfCheck) {
  return std::to_array<EnumName<SelfCheck>>(
      {{SelfCheck::automatic, "auto"}, {SelfCheck::always, "always"}, {SelfCheck::never, "never"}});
}

/// Reaction to a checkpoint that cannot be written.
enum class OnFailure : std::uint8_t { stop, continue_run };
constexpr auto enum_names(OnFailure) {
  return std::to_array<EnumName<OnFailure>>(
      {{OnFailure::stop, "stop"}, {OnFailure::continue_run, "continue"}});
}

/// Effect of a resumed run's additional epochs on its learning-rate schedule.
enum class MoreEpochs : std::uint8_t { stretch, hold, restart };
constexpr auto enum_names(MoreEpochs) {
  return std::to_array<EnumName<MoreEpochs>>({{MoreEpochs::stretch, "stretch"},
                                              {MoreEpochs::hold, "hold"},
                                              {MoreEpochs::restart, "restart"}});
}

/// Source of the numbers of data.normalize.
enum class NormalizeMode : std::uint8_t { none, automatic, given };
constexpr auto enum_names(NormalizeMode) {
  return std::to_array<EnumName<NormalizeMode>>({{NormalizeMode::none, "none"},
                                                 {NormalizeMode::automatic, "auto"},
                                                 {NormalizeMode::given, "given"}});
}

/// Reaction to an unreadable sample (engine/data/bad_samples.h).
enum class OnBadSample : std::uint8_t { stop, skip, salvage };
constexpr auto enum_names(OnBadSample) {
  return std::to_array<EnumName<OnBadSample>>({{OnBadSample::stop, "stop"},
                                               {OnBadSample::skip, "skip"},
                                               {OnBadSample::salvage, "salvage"}});
}

/// Use of the orientation that a camera stores in an image file.
enum class ExifOrientation : std::uint8_t { apply, ignore };
constexpr auto enum_names(ExifOrientation) {
  return std::to_array<EnumName<ExifOrientation>>(
      {{ExifOrientation::apply, "apply"}, {ExifOrientation::ignore, "ignore"}});
}

/// Reaction to a non-finite step (engine/training/divergence.h).
enum class DivergencePolicy : std::uint8_t { halt, skip, rollback };
constexpr auto enum_names(DivergencePolicy) {
  return std::to_array<EnumName<DivergencePolicy>>({{DivergencePolicy::halt, "halt"},
                                                    {DivergencePolicy::skip, "skip"},
                                                    {DivergencePolicy::rollback, "rollback"}});
}

/// A layer, or a block of layers (engine/config/blocks.h): its kind and options, its name and, for
/// graphs, its inputs.
struct LayerSpec {
  Variant op;        ///< kind and options
  std::string name;  ///< given, or its index in the list ("0", "1"), as in nn.Sequential
  std::vector<std::string> from;  ///< names of its inputs; empty = the previous layer
  std::string share_weights;      ///< the layer whose parameters it uses; empty = its own
  Where where;
  std::string path;  ///< place in the config, see origins; empty = added by a block
};

struct ModelSpec {
  std::vector<std::int64_t> input;  ///< [channels, height, width]
  Variant zoo;                      ///< the network that created `written`; no type = none
  std::vector<LayerSpec> written;   ///< layers of the config, with blocks
  /// Layers that run: the blocks expanded, each layer under its full name.
  std::vector<LayerSpec> layers;
  Where where;
};

/// Normalisation of all splits. With `automatic`, the numbers are empty until they are measured at
/// the start of a run.
struct NormalizeSpec {
  NormalizeMode mode = NormalizeMode::none;
  std::vector<double> mean, std;  ///< one per channel
  Where where;

  bool has_numbers() const { return !mean.empty(); }
  bool is_pending() const { return mode == NormalizeMode::automatic && !has_numbers(); }
};

struct TransformsSpec {
  std::vector<Variant> written_train, written_eval;  ///< lists in the config
  std::vector<Variant> train, eval;  ///< transforms that run: the written ones and data.normalize
  std::vector<Variant> batch;  ///< one of them is chosen for each training batch; may be empty
};

/// The training samples that are held out for validation: `count`, or `fraction`, or one of the
/// parts of `fold`. At most one of the three is given; without any, no samples are held out.
struct ValSplitSpec {
  std::int64_t count = 0;
  double fraction = 0;  ///< fraction of all training samples, rounded to whole samples
  std::optional<std::vector<std::int64_t>> fold = {};  ///< [k, K]: part k of K, from 1
  bool stratify = false;                               ///< hold out the same fraction of each class
  std::string group = {};  ///< column of the data; rows with the same value in it stay together

  bool holds_out() const { return count > 0 || fraction > 0 || fold.has_value(); }
  friend bool operator==(const ValSplitSpec&, const ValSplitSpec&) = default;
};

/// Frequency with which each sample occurs in an epoch.
enum class Sampler : std::uint8_t { uniform, balanced };
constexpr auto enum_names(Sampler) {
  return std::to_array<EnumName<Sampler>>(
      {{Sampler::uniform, "uniform"}, {Sampler::balanced, "balanced"}});
}

struct DataSpec {
  Variant dataset;              ///< kind and its own fields (root, ...)
  std::int64_t batch_size = 0;  ///< samples per step over all replicas
  ValSplitSpec val_split;       ///< held out of the training files
  /// True if the data set may have its own validation set. Not a config field: set by the reader.
  bool may_have_val = false;
  bool shuffle = true;
  Sampler sampler = Sampler::uniform;
  std::int64_t workers = 0;   ///< decoder threads of a process; 0 = auto
  std::int64_t prefetch = 4;  ///< batches decoded ahead
  OnBadSample on_bad_sample = OnBadSample::stop;
  std::int64_t max_bad_samples = 100;  ///< limit for each process
  ExifOrientation exif_orientation = ExifOrientation::apply;
  std::string cache;                    ///< folder; empty = none (engine/data/packed_cache.h)
  std::int64_t cache_shorter_side = 0;  ///< 0 = images keep their size
  NormalizeSpec normalize;
  TransformsSpec transforms;

  /// Returns false only if it is certain that there are no validation samples.
  bool may_validate() const { return val_split.holds_out() || may_have_val; }
};

struct WarmupSpec {
  double epochs = 0;
  std::int64_t steps = 0;  ///< length in steps; 0 = `epochs` is the length
  /// The first step's rate is start_factor * lr. The default is that of PyTorch's LinearLR.
  double start_factor = 1.0 / 3.0;
};

struct EarlyStoppingSpec {
  std::string monitor = "val/accuracy";
  std::int64_t patience = 5;        ///< evaluations without improvement
  Direction mode = Direction::max;  ///< default: the better direction of the monitor
  double min_delta = 0.0;
  double smoothing = 0.0;
};

/// Reaction to a step whose loss, gradient or update is non-finite.
struct OnDivergenceSpec {
  DivergencePolicy policy = DivergencePolicy::halt;
  std::int64_t max_skips = 10;     ///< skip: maximum number of consecutive skipped steps
  std::int64_t max_rollbacks = 5;  ///< rollback: maximum number in a whole run
  double lr_factor = 0.5;          ///< rollback: factor on the learning rate, applied each time

  bool rolls_back() const { return policy == DivergencePolicy::rollback; }
};

/// An exponential moving average of the weights.
struct EmaSpec {
  double decay = 0.999;
};

/// An equal average of the weights after some of the epochs (stochastic weight averaging).
struct SwaSpec {
  std::int64_t from_epoch = 1;  ///< counted from 1
  std::int64_t every = 1;       ///< epochs from one averaged epoch to the next
};

/// Patterns for the names of parameters that are not trained.
struct FreezeSpec {
  std::vector<std::string> params;  ///< empty = all if `except` is given, else none
  std::vector<std::string> except;  ///< patterns of parameters that are trained nevertheless
};

struct TrainSection {
  std::int64_t epochs = 0;
  std::optional<MoreEpochs> on_more_epochs;  ///< unset = refused if the learning rate would change
  std::int64_t shards = 0;                   ///< 0 = auto (fast mode); N = exact mode with N shards
  std::int64_t accumulate = 1;               ///< minimum number of micro-batches of a shard
  std::optional<double> grad_clip_norm, grad_clip_value;
  FreezeSpec freeze;
  std::optional<EmaSpec> ema;  ///< unset = none; excludes `swa`
  std::optional<SwaSpec> swa;  ///< unset = none; excludes `ema`
  std::optional<EarlyStoppingSpec> early_stopping;
  OnDivergenceSpec on_divergence;
  Precision precision = Precision::fp32;
  bool autotune = true;
  SelfCheck self_check = SelfCheck::automatic;
  double stall_timeout = 600;  ///< seconds without a heartbeat of a replica
};

struct KeepBestSpec {
  std::string monitor = "val/accuracy";
  Direction mode = Direction::max;  ///< default: the better direction of the monitor
  double smoothing = 0.0;
};

struct CheckpointSpec {
  std::int64_t every = 1;        ///< epochs between checkpoints; 0 = only at the end
  std::int64_t every_steps = 0;  ///< also every N steps; 0 = no
  std::int64_t keep_last = 2;
  KeepBestSpec keep_best;
  OnFailure on_failure = OnFailure::stop;
};

struct LogSpec {
  std::int64_t every = 50;         ///< steps; step 1 is always logged
  std::set<std::string> measured;  ///< names of the Catalog::measurements that are switched on
  bool tensorboard = false;        ///< also write event files
  std::string prometheus;          ///< textfile for node_exporter; empty = none
};

/// Rows of the last layer that are loaded from a weights file.
enum class HeadRows : std::uint8_t { by_class_name, fresh };
constexpr auto enum_names(HeadRows) {
  return std::to_array<EnumName<HeadRows>>(
      {{HeadRows::by_class_name, "by_class_name"}, {HeadRows::fresh, "new"}});
}

/// Choice between the weights in a checkpoint and their averages.
enum class WeightsUse : std::uint8_t { ema, swa, raw };
constexpr auto enum_names(WeightsUse) {
  return std::to_array<EnumName<WeightsUse>>(
      {{WeightsUse::ema, "ema"}, {WeightsUse::swa, "swa"}, {WeightsUse::raw, "raw"}});
}

/// Value of WeightsSpec::file for the pretrained weights of the network of the zoo.
inline constexpr const char* kPretrained = "pretrained";

/// The weights that a run starts from.
struct WeightsSpec {
  std::string file;                   ///< path, name of a file on a server, or kPretrained
  std::optional<std::string> sha256;  ///< hash of the file, in hexadecimal; unset = any
  std::optional<std::string> key;  ///< name of a dictionary in a PyTorch file; unset = found by dpt
  TextPairs map;                   ///< prefixes of names in the file -> those in the model
  std::vector<std::string> expect_missing, expect_left_over;  ///< patterns
  std::optional<HeadRows> head;   ///< unset = the last layer is loaded like any other
  std::optional<WeightsUse> use;  ///< unset = the average, if the file has one
  /// True if a tensor in the file may have another shape with the same values in the same order,
  /// such as [C] for [C, 1, 1]. Not a config field, but set for known files.
  bool takes_other_shapes = false;
};

struct TrainSpec {
  std::int64_t version = 1;
  std::string name;
  std::int64_t seed = 1;
  DataSpec data;
  ModelSpec model;
  Variant loss;                  ///< default: cross_entropy
  std::vector<Variant> metrics;  ///< besides accuracy
  Variant optimizer;
  Variant lr_schedule;  ///< default: constant
  WarmupSpec warmup;    ///< read from lr_schedule.warmup
  TrainSection train;
  std::optional<WeightsSpec> weights;  ///< unset = starts from initial values
  CheckpointSpec checkpoint;
  LogSpec log;
  std::vector<std::string> devices = {"auto"};
  std::vector<double> device_weights;  ///< one per device; empty = auto

  std::string file;  ///< file from which it was read
  /// Dotted path of each written value ("model.layers.0.type") -> its place. All other values are
  /// defaults.
  std::map<std::string, Where> origins;
};

/// Properties that all data sets of a kind share, known without opening one.
struct DataFacts {
  std::vector<std::int64_t> input;  ///< [channels, height, width]
  std::int64_t classes = 0;
};

/// The kinds that a config can choose.
struct Catalog {
  VariantTable layers, losses, metrics, optimizers, schedules, datasets, transforms;
  VariantTable batch_transforms;
  VariantTable zoo;  ///< ready-made networks; their tag is kZooTag
  /// Returns the layers of a network of the zoo, as YAML: a list of layers and blocks.
  std::string (*zoo_layers)(const Variant& net) = nullptr;
  /// Returns the facts of a kind of data set; unset if its data may have any size. Null if there
  /// are no data sets.
  std::optional<DataFacts> (*data_facts)(const std::string& dataset) = nullptr;
  /// Returns the quantities that a run with these metrics measures: "loss", "accuracy", ...
  std::vector<std::string> (*measured_names)(const std::vector<Variant>& metrics) = nullptr;
  /// Returns the direction of better values of a monitor such as "val/loss".
  std::optional<Direction> (*better_direction)(const std::string& monitor) = nullptr;
  /// Returns true if a data set has its own validation set; unset if that depends on its files.
  /// Null if no data set has one.
  std::optional<bool> (*declares_validation)(const Variant& dataset) = nullptr;
  /// Returns the number of classes or targets of a data set, and may read label files for it; unset
  /// if the model decides. Throws an Error if files cannot be read. Null if there are no data sets.
  std::optional<std::int64_t> (*data_outputs)(const Variant& dataset) = nullptr;
  /// Name and description of each switch of `log` that turns on a measurement.
  TextPairs measurements;
};

}  // namespace dpt
