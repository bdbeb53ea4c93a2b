// TrainSpec: a config file as plain structs, defaults filled in, every value checked. Frozen after
// reading. The kinds of layers, data sets, transforms, optimizers and schedules are not known
// here: their tables are handed in as a Catalog (see app/catalog.cpp), so spec depends on nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/spec/fields.h"

namespace dpt {

/// A layer as written: its kind and options, its name and, for graphs, its inputs.
struct LayerSpec {
  Variant op;                     ///< kind and options
  std::string name;               ///< given, or its index in the list ("0", "1"), as nn.Sequential
  std::vector<std::string> from;  ///< names of its inputs; empty = the layer before
  Where where;
};

struct ModelSpec {
  std::vector<std::int64_t> input;  ///< [channels, height, width]
  std::vector<LayerSpec> layers;
  Where where;
};

struct TransformsSpec {
  std::vector<Variant> train, eval;
};

struct DataSpec {
  Variant dataset;              ///< kind and its own fields (root, ...)
  std::int64_t batch_size = 0;  ///< global
  std::int64_t val_split = 0;   ///< samples held out of the training files
  bool shuffle = true;
  std::int64_t workers = 0;   ///< decoder threads for sources that decode; 0 = auto
  std::int64_t prefetch = 4;  ///< batches decoded ahead
  TransformsSpec transforms;
};

struct LossSpec {
  std::string type = "cross_entropy";
  double label_smoothing = 0.0;
};

struct WarmupSpec {
  double epochs = 0;
  std::int64_t steps = 0;     ///< used when > 0; not together with epochs
  double start_factor = 0.0;  ///< the learning rate starts at start_factor * lr
};

struct EarlyStoppingSpec {
  std::string monitor = "val/accuracy";
  std::int64_t patience = 5;  ///< evaluations without a better value
  std::string mode = "max";
  double min_delta = 0.0;
};

struct TrainSection {
  std::int64_t epochs = 0;
  std::int64_t shards = 0;  ///< 0 = auto (fast mode); N = exact mode with N shards
  std::optional<double> grad_clip_norm;
  std::optional<EarlyStoppingSpec> early_stopping;
  std::string precision = "fp32";
  bool autotune = true;
  double stall_timeout = 600;  ///< seconds without a sign of life of a replica
};

struct KeepBestSpec {
  std::string monitor = "val/accuracy";
  std::string mode = "max";
};

struct CheckpointSpec {
  std::int64_t every = 1;        ///< epochs
  std::int64_t every_steps = 0;  ///< also every N steps; 0 = no
  std::int64_t keep_last = 2;
  KeepBestSpec keep_best;
  std::string on_failure = "stop";  ///< a save that fails: "stop" | "continue"
};

struct LogSpec {
  std::int64_t every = 50;  ///< steps; step 1 is always logged
};

struct TrainSpec {
  std::int64_t version = 1;
  std::string name;
  std::int64_t seed = 1;
  DataSpec data;
  ModelSpec model;
  LossSpec loss;
  Variant optimizer;
  Variant lr_schedule;  ///< default: constant
  WarmupSpec warmup;    ///< read from lr_schedule.warmup
  TrainSection train;
  CheckpointSpec checkpoint;
  LogSpec log;
  std::vector<std::string> devices = {"auto"};
  std::vector<double> device_weights;  ///< of each device in the work; empty = auto

  std::string file;  ///< where it was read from
  /// Dotted path of each value that was written ("model.layers.0.type") -> where. What is absent
  /// here is a default.
  std::map<std::string, Where> origins;
};

/// The kinds that can stand in a config.
struct Catalog {
  VariantTable layers, optimizers, schedules, datasets, transforms;
};

}  // namespace dpt
