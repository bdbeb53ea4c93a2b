#include "engine/spec/spec_tables.h"

namespace dpt {
namespace {

/// A monitor whose better direction is not the one given would keep the worst.
std::string check_direction(Monitor monitor, Direction mode) {
  if (mode == better_direction(monitor)) return {};
  return fmt::format("expected mode: {} with monitor: {}, found {}",
                     name_of(better_direction(monitor)), name_of(monitor), name_of(mode));
}

/// `mode` of a struct with a `monitor`.
template <class S>
Field mode_field() {
  return field("mode", &S::mode, "Whether greater or lesser values are better.")
      .follows(
          "monitor", +[](const S& s) { return better_direction(s.monitor); });
}

/// A nested object whose fields are members of the struct that holds it.
Field same_object_field(const char* name, const ObjectTable& table, const char* doc) {
  Field f;
  f.name = name;
  f.doc = doc;
  f.type = FieldType::object;
  f.object = &table;
  f.nested = [](void* object) { return object; };
  f.nested_const = [](const void* object) { return object; };
  return f;
}

template <class S>
FlatChoice flat_choice(Variant S::*member, const VariantTable& variants,
                       std::string default_type = {}) {
  FlatChoice choice;
  choice.variants = &variants;
  choice.at = [member](void* object) { return &(static_cast<S*>(object)->*member); };
  choice.default_type = std::move(default_type);
  return choice;
}

ObjectTable early_stopping_table() {
  using S = EarlyStoppingSpec;
  return object_table<S>(
      "early_stopping", "Ends the training when a monitored value no longer improves.",
      {field("monitor", &S::monitor, "The value that is monitored."),
       field("patience", &S::patience, "Evaluations without a better value before the end.")
           .at_least(1),
       mode_field<S>(),
       field("min_delta", &S::min_delta, "The least change that counts as better.").at_least(0)},
      [](const S& s) { return check_direction(s.monitor, s.mode); });
}

ObjectTable on_divergence_table() {
  using S = OnDivergenceSpec;
  return object_table<S>(
      "on_divergence",
      "What follows a step whose loss, gradient norm or updated weights are NaN or infinite.",
      {field("policy", &S::policy,
             "halt: the run ends with exit code 5. skip: the step updates nothing and the run goes "
             "on with the next one. rollback: the run goes back to its last regular checkpoint "
             "(or its start) and goes on with a lower learning rate."),
       field("max_skips", &S::max_skips, "skip: how many steps in a row; then the run halts.")
           .at_least(1),
       field("max_rollbacks", &S::max_rollbacks,
             "rollback: how many in the whole run; then the run halts.")
           .at_least(1),
       field("lr_factor", &S::lr_factor,
             "rollback: the learning rate is multiplied by it from there on, each time; above 0 "
             "and below 1.")
           .above(0)},
      [](const S& s) -> std::string {
        if (s.lr_factor < 1) return {};
        return fmt::format(
            "lr_factor: expected a number below 1 (the same learning rate gives the same "
            "divergence), found {:g}",
            s.lr_factor);
      });
}

ObjectTable keep_best_table() {
  using S = KeepBestSpec;
  return object_table<S>(
      "keep_best", "Which checkpoint is kept as best.safetensors.",
      {field("monitor", &S::monitor, "The value that is compared."), mode_field<S>()},
      [](const S& s) { return check_direction(s.monitor, s.mode); });
}

ObjectTable warmup_table() {
  using S = WarmupSpec;
  return object_table<S>(
      "warmup",
      "A linear rise of the learning rate over the first steps, as PyTorch's LinearLR: step k of n "
      "(from 0) "
      "trains at (start_factor + (1 - start_factor) * k / n) times the schedule's rate.",
      {field("epochs", &S::epochs, "Length in epochs; may be a fraction.").at_least(0),
       field("steps", &S::steps, "Length in steps; not together with epochs.").at_least(0),
       field("start_factor", &S::start_factor,
             "The first step's rate as a fraction of the schedule's; 1/3 as LinearLR's default.")
           .range(0, 1)},
      [](const S& s) -> std::string {
        if (s.epochs > 0 && s.steps > 0) return "expected 'epochs' or 'steps', found both";
        return {};
      });
}

ObjectTable checkpoint_table(const ObjectTable& keep_best) {
  using S = CheckpointSpec;
  return object_table<S>(
      "checkpoint", "When checkpoints are written, and which stay.",
      {field("every", &S::every, "Epochs between checkpoints; 0: only at the end.").at_least(0),
       field("every_steps", &S::every_steps, "Also after every so many steps; 0: never.")
           .at_least(0),
       field("keep_last", &S::keep_last, "How many of the newest are kept.").range(1, 1'000'000),
       object_field("keep_best", &S::keep_best, keep_best, "Which one is kept as the best."),
       field("on_failure", &S::on_failure,
             "When one cannot be written: stop the run, or continue without it.")});
}

}  // namespace

SpecTables::SpecTables(const Catalog& catalog)
    : early_stopping(early_stopping_table()),
      on_divergence(on_divergence_table()),
      keep_best(keep_best_table()) {
  transforms = object_table<TransformsSpec>(
      "transforms", "What happens to samples before the model sees them, in order.",
      {variants_field("train", &TransformsSpec::train, catalog.transforms, "For training."),
       variants_field("eval", &TransformsSpec::eval, catalog.transforms,
                      "For validation and test.")});

  data = object_table<DataSpec>(
      "data", "The samples, and how they become batches.",
      {field("batch_size", &DataSpec::batch_size, "Samples per step, over all devices together.")
           .required()
           .range(1, 1 << 30),
       field("val_split", &DataSpec::val_split,
             "Samples held out of the training files for validation.")
           .at_least(0),
       field("shuffle", &DataSpec::shuffle, "Draw a new order for each epoch."),
       field("workers", &DataSpec::workers,
             "Threads of each replica that decode samples, for formats that need it; auto: an even "
             "part of the cores that the replicas leave free, at least one.")
           .range(1, 1024)
           .zero_as("auto")
           .changeable(),
       field("prefetch", &DataSpec::prefetch, "Batches that are decoded ahead.")
           .range(1, 1024)
           .changeable(),
       object_field("transforms", &DataSpec::transforms, transforms,
                    "Augmentation and normalisation.")});
  data.choice = flat_choice(&DataSpec::dataset, catalog.datasets);

  layer = object_table<LayerSpec>(
      "layer", "One layer; the fields of its type are written next to these.",
      {field("name", &LayerSpec::name,
             "Its name in messages and checkpoints; its index in the list if not given."),
       field("from", &LayerSpec::from,
             "Names of the layers it reads; the layer before if not given.")});
  layer.choice = flat_choice(&LayerSpec::op, catalog.layers);
  layer.set_where = [](void* object, const Where& at) {
    static_cast<LayerSpec*>(object)->where = at;
  };

  model = object_table<ModelSpec>(
      "model", "The network.",
      {field("input", &ModelSpec::input, "Shape of one sample: [channels, height, width].")
           .required()
           .range(1, 65536)
           .items(3, 3),
       objects_field("layers", &ModelSpec::layers, layer, "The layers, in order.")
           .required()
           .items(1, 10'000)});
  model.set_where = [](void* object, const Where& at) {
    static_cast<ModelSpec*>(object)->where = at;
  };

  loss = object_table<LossSpec>(
      "loss", "The value that is minimised.",
      {field("type", &LossSpec::type, "Softmax and cross-entropy, the mean over the batch."),
       field("label_smoothing", &LossSpec::label_smoothing,
             "Part of the target that is spread evenly over all classes.")
           .range(0, 1)});

  warmup = warmup_table();
  schedule = object_table<TrainSpec>(
      "lr_schedule",
      "How the learning rate changes; the fields of its type are written next to these.",
      {object_field("warmup", &TrainSpec::warmup, warmup, "A linear rise at the start.")});
  schedule.choice = flat_choice(&TrainSpec::lr_schedule, catalog.schedules, "constant");

  train = object_table<TrainSection>(
      "train", "The training.",
      {field("epochs", &TrainSection::epochs, "Passes over the training samples.")
           .required()
           .range(1, 1'000'000)
           .changeable(),
       field("shards", &TrainSection::shards,
             "auto: fastest. A number: exact mode, the same bits on any number of replicas up to "
             "it.")
           .range(1, 65536)
           .zero_as("auto"),
       field("grad_clip_norm", &TrainSection::grad_clip_norm,
             "Largest norm of the whole gradient; a larger one is scaled down to it.")
           .above(0),
       object_field("early_stopping", &TrainSection::early_stopping, early_stopping,
                    "When to stop before the last epoch."),
       object_field("on_divergence", &TrainSection::on_divergence, on_divergence,
                    "What follows a step that is not finite.")
           .changeable(),
       field("precision", &TrainSection::precision,
             "Arithmetic: fp32; tf32 (fp32 with factors of products rounded to 10 bits, NVIDIA "
             "GPUs only); bf16 (activations and copies of the weights in bf16; weights, sums and "
             "statistics in fp32; on the CPU only where it has AVX512-BF16 or AMX)."),
       field("autotune", &TrainSection::autotune,
             "On NVIDIA GPUs: time the implementations of each convolution and linear layer once "
             "and keep the choice for later runs. Exact mode never does."),
       field("stall_timeout", &TrainSection::stall_timeout,
             "Seconds without progress after which a replica that others wait for has stalled: the "
             "run ends with exit code 6. Time in which the process is stopped does not count, and "
             "neither does a slow replica that still reads, computes or saves.")
           .range(0.01, 1e9)
           .changeable()});

  checkpoint = checkpoint_table(keep_best);
  log = object_table<LogSpec>(
      "log", "What is written to metrics.jsonl.",
      {field("every", &LogSpec::every, "Steps between lines; the first step always has one.")
           .at_least(1)});

  root = object_table<TrainSpec>(
      "config", "A config file of dpt.",
      {field("version", &TrainSpec::version, "Of this format.").range(1, 1),
       field("name", &TrainSpec::name,
             "Name of the run and its folder; the file's name without .yaml if not given."),
       field("seed", &TrainSpec::seed, "All random draws follow from it.").at_least(0),
       object_field("data", &TrainSpec::data, data, "The samples.").required(),
       object_field("model", &TrainSpec::model, model, "The network.").required(),
       object_field("loss", &TrainSpec::loss, loss, "The value that is minimised."),
       variant_field("optimizer", &TrainSpec::optimizer, catalog.optimizers,
                     "How the gradients change the weights.")
           .required(),
       same_object_field("lr_schedule", schedule, "How the learning rate changes."),
       object_field("train", &TrainSpec::train, train, "The training.").required(),
       object_field("checkpoint", &TrainSpec::checkpoint, checkpoint, "What is saved, and when.")
           .changeable(),
       object_field("log", &TrainSpec::log, log, "What is logged, and when.").changeable(),
       field("devices", &TrainSpec::devices,
             "auto, cpu, cuda, or a list with one entry per replica: cpu, cpu:4 (threads), "
             "cuda:0.")
           .items(1, 65536)
           .changeable(),
       field("device_weights", &TrainSpec::device_weights,
             "How the work is divided among the devices: a number for each, such as [9, 1]; only "
             "their "
             "ratio matters. auto: equal, or by threads among CPUs; where CPUs and GPUs train "
             "together, measured in the first steps.")
           .above(0)
           .items(1, 65536)
           .zero_as("auto")
           .changeable()
           .formerly("shares")});
}

}  // namespace dpt
