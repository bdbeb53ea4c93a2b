#include "engine/config/spec_tables.h"

#include "engine/config/blocks.h"
#include "engine/config/monitor_fields.h"
#include "engine/config/patch.h"

namespace dpt {
namespace {

/// Returns a field for a nested object whose fields are members of the enclosing struct.
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

/// Returns the field that switches a measurement on.
Field measurement_field(const std::string& name, const std::string& doc) {
  Field f;
  f.name = name;
  f.doc = doc;
  f.get = [name](const void* log) -> PlainValue {
    return static_cast<const LogSpec*>(log)->measured.contains(name);
  };
  f.set = [name](void* log, const PlainValue& value) {
    std::set<std::string>& measured = static_cast<LogSpec*>(log)->measured;
    measured.erase(name);
    if (std::get<bool>(value)) measured.insert(name);
  };
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

/// Returns `table` with a check that the `monitor` and the `mode` of its struct fit together.
template <class S>
ObjectTable with_direction_checked(ObjectTable table, BetterDirection better) {
  table.check = [better](const void* object) {
    const S& s = *static_cast<const S*>(object);
    return check_direction(better, s.monitor, s.mode);
  };
  return table;
}

ObjectTable early_stopping_table(BetterDirection better) {
  using S = EarlyStoppingSpec;
  ObjectTable table = object_table<S>(
      "early_stopping", "Ends training when a monitored value no longer improves.",
      {monitor_field<S>(),
       field("patience", &S::patience, "Evaluations without improvement before training ends.")
           .at_least(1),
       mode_field<S>(better),
       field("min_delta", &S::min_delta, "The smallest change that counts as an improvement.")
           .at_least(0),
       smoothing_field<S>()});
  return with_direction_checked<S>(std::move(table), better);
}

ObjectTable freeze_table() {
  using S = FreezeSpec;
  return object_table<S>(
      "freeze", "Parameters that are not trained.",
      {field("params", &S::params,
             "Patterns for names of parameters, such as \"conv1.*\". A star matches any number of "
             "characters, a question mark one; a pattern that matches nothing is an error. A plain "
             "list for freeze sets this field. Empty, with except: all parameters."),
       field("except", &S::except,
             "Patterns for names of parameters that are trained nevertheless, such as \"fc.*\".")});
}

ObjectTable ema_table() {
  return object_table<EmaSpec>(
      "ema",
      "Keeps an exponential moving average of the weights and running statistics. Validation, "
      "keep_best, early stopping and the test at the end then use the average.",
      {field("decay", &EmaSpec::decay,
             "Fraction of the old average that each update keeps, limited to (1 + n) / (10 + n) in "
             "update n.")
           .range(0, 1)});
}

ObjectTable swa_table() {
  using S = SwaSpec;
  return object_table<S>(
      "swa",
      "Stochastic weight averaging: keeps the equal average of the weights and running statistics "
      "after some of the epochs, as torch.optim.swa_utils.AveragedModel does with use_buffers. "
      "Validation, keep_best, early stopping, the schedule plateau and the test at the end use the "
      "average from its first epoch on, and ignore epochs without a new average.",
      {field("from_epoch", &S::from_epoch,
             "First epoch whose final weights enter the average, counted from 1; at most "
             "train.epochs.")
           .required()
           .range(1, 1'000'000),
       field("every", &S::every, "Number of epochs from one averaged epoch to the next.")
           .range(1, 1'000'000)});
}

/// Returns the first conflict between fields of `train`; empty if there is none.
std::string problem_of_train(const TrainSection& s) {
  if (s.grad_clip_norm && s.grad_clip_value) {
    return "expected grad_clip_norm or grad_clip_value, found both";
  }
  if (s.ema && s.swa) return "expected ema or swa, found both: a run keeps one average";
  if (s.swa && s.swa->from_epoch > s.epochs) {
    return fmt::format(
        "swa.from_epoch: expected one of the {} epochs, found {}: nothing would be "
        "averaged",
        s.epochs, s.swa->from_epoch);
  }
  return {};
}

ObjectTable on_divergence_table() {
  using S = OnDivergenceSpec;
  return object_table<S>(
      "on_divergence",
      "Reaction to a step whose loss, gradient norm or updated weights are NaN or infinite.",
      {field("policy", &S::policy,
             "halt: the run ends with exit code 5. skip: the step updates nothing and the run "
             "continues with the next one. rollback: the run goes back to its last regular "
             "checkpoint (or its start) and continues with a lower learning rate."),
       field("max_skips", &S::max_skips,
             "skip: maximum number of steps skipped in a row; one more halts the run.")
           .at_least(1),
       field("max_rollbacks", &S::max_rollbacks,
             "rollback: maximum number of rollbacks in the whole run; one more halts it.")
           .at_least(1),
       field("lr_factor", &S::lr_factor,
             "rollback: factor by which each rollback multiplies the learning rate for the rest of "
             "the run; above 0 and below 1.")
           .above(0)},
      [](const S& s) -> std::string {
        if (s.lr_factor < 1) return {};
        return fmt::format(
            "lr_factor: expected a number below 1 (the same learning rate gives the same "
            "divergence), found {:g}",
            s.lr_factor);
      });
}

ObjectTable keep_best_table(BetterDirection better) {
  using S = KeepBestSpec;
  return with_direction_checked<S>(
      object_table<S>("keep_best", "Choice of the checkpoint that is kept as best.safetensors.",
                      {monitor_field<S>(), mode_field<S>(better), smoothing_field<S>()}),
      better);
}

ObjectTable warmup_table() {
  using S = WarmupSpec;
  return object_table<S>(
      "warmup",
      "Linear warm-up of the learning rate over the first steps, like PyTorch's LinearLR: step k "
      "of n (from 0) trains at (start_factor + (1 - start_factor) * k / n) times the schedule's "
      "learning rate.",
      {field("epochs", &S::epochs, "Length in epochs; may be a fraction.").range(0, 1'000'000),
       field("steps", &S::steps, "Length in steps; not together with epochs.").at_least(0),
       field("start_factor", &S::start_factor,
             "The first step's learning rate as a fraction of the schedule's; 1/3 is LinearLR's "
             "default.")
           .range(0, 1)},
      [](const S& s) -> std::string {
        if (s.epochs > 0 && s.steps > 0) return "expected 'epochs' or 'steps', found both";
        return {};
      });
}

ObjectTable val_split_table() {
  using S = ValSplitSpec;
  return object_table<S>(
      "val_split",
      "Training samples that are held out for validation: count, fraction or fold. The seed alone "
      "chooses them, so they are the same on any devices and after a resume.",
      {field("count", &S::count, "Number of samples; a plain number for val_split sets this field.")
           .at_least(0),
       field("fraction", &S::fraction,
             "Fraction of the training samples, from 0 to below 1. The result is rounded to whole "
             "samples, with a minimum of one.")
           .at_least(0),
       field("fold", &S::fold,
             "[k, K], for cross-validation: the samples are divided into K parts of equal size, "
             "and part k, from 1, is held out. Runs with k from 1 to K and the same seed hold each "
             "sample out once.")
           .items(2, 2)
           .at_least(1),
       field("stratify", &S::stratify,
             "Hold out the same fraction of each class; needs class labels."),
       field("group", &S::group,
             "Name of a column of the training file (csv): lines with the same text in this "
             "column, such as images of one patient, are either all trained on or all held out. "
             "The number of samples is then as close to the requested one as whole groups allow.")},
      [](const S& s) -> std::string {
        const int given = (s.count > 0 ? 1 : 0) + (s.fraction > 0 ? 1 : 0) + (s.fold ? 1 : 0);
        if (given > 1)
          return "expected one of count, fraction and fold, found several (0, or null for fold, "
                 "unsets a value from another config or an earlier line)";
        if (given == 0 && (s.stratify || !s.group.empty())) {
          return "expected count, fraction or fold with stratify or group, found none";
        }
        if (!(s.fraction < 1)) {
          return fmt::format("fraction: expected a number from 0 to below 1, found {:g}",
                             s.fraction);
        }
        if (s.fold && ((*s.fold)[1] < 2 || (*s.fold)[0] > (*s.fold)[1])) {
          return fmt::format(
              "fold: expected [k, K] with K of at least 2 and k from 1 to K, found "
              "[{}, {}]",
              (*s.fold)[0], (*s.fold)[1]);
        }
        return {};
      });
}

ObjectTable normalize_table() {
  using S = NormalizeSpec;
  ObjectTable table = object_table<S>(
      "normalize",
      "The normalisation of all splits: scales the values to 0..1, then subtracts the mean of each "
      "channel and divides by the standard deviation. It has the same effect as a Normalize at the "
      "end of both transforms.train and transforms.eval (before a RandomErasing).",
      {field("mean", &S::mean, "Mean of each channel."),
       field("std", &S::std, "Standard deviation of each channel."),
       field("mode", &S::mode,
             "none: no normalisation. auto: the mean and standard deviation of the training "
             "samples, without those that val_split holds out, as `dpt data stats` prints them. A "
             "new run measures them when it starts; a resumed run, eval, predict and export use "
             "the same numbers. given: the numbers in mean and std; the default if these are set.")
           .follows(
               "mean",
               +[](const S& s) {
                 return s.has_numbers() ? NormalizeMode::given : NormalizeMode::none;
               })},
      [](const S& s) -> std::string {
        if (s.mean.size() != s.std.size()) {
          return fmt::format("expected as many numbers in mean as in std, found {} and {}",
                             s.mean.size(), s.std.size());
        }
        if (s.mode == NormalizeMode::none && s.has_numbers()) {
          return "expected no mean and std with mode: none, found both: leave mode out";
        }
        if (s.mode == NormalizeMode::given && !s.has_numbers()) {
          return "expected mean and std, found neither: write auto to have them measured, or none";
        }
        return {};
      });
  table.set_where = [](void* object, const Where& at) { static_cast<S*>(object)->where = at; };
  return table;
}

ObjectTable weights_table() {
  using S = WeightsSpec;
  return object_table<S>(
      "weights",
      "The weights that a new run starts from (finetuning); a resumed run does not read them "
      "again. A tensor that only the model or only the file has is an error, unless a pattern "
      "names it. In patterns, a star matches any number of characters, a question mark one; a "
      "pattern that matches nothing is an error too.",
      {path_field(
           "file", &S::file,
           "A safetensors file with torchvision's names and layouts, such as a checkpoint of dpt, "
           "or a file written by PyTorch's torch.save (.pth, .pt). A URL (https://...) or a file "
           "of the Hugging Face hub (hf://OWNER/REPO[@REVISION][/FILE]; default: model.safetensors "
           "of main) is downloaded once. pretrained: the weights of the network of model.zoo. "
           "--weights replaces it.")
           .required()
           .or_remote(kPretrained),
       field("sha256", &S::sha256,
             "SHA-256 of the file, 64 hexadecimal digits: any other file is an error. dpt writes "
             "the hash of a downloaded file into the config of the run.")
           .changeable(),
       field("key", &S::key,
             "Dictionary of tensors to load from a PyTorch file that has several, such as "
             "state_dict_ema or ema.module. Not set: the file's own tensors, else its only "
             "dictionary, else model or state_dict."),
       field("map", &S::map,
             "Maps prefixes of the names in the file to those of the model, such as {\"module.\": "
             "\"\", \"features.\": \"backbone.\"}. The longest matching prefix is replaced, once."),
       field("expect_missing", &S::expect_missing,
             "Patterns for names of the model's tensors, such as \"fc.*\", that the file may lack; "
             "missing tensors keep their initial values. If expect_left_over also names the file's "
             "tensor, that tensor is not read and may have another shape."),
       field("expect_left_over", &S::expect_left_over,
             "Patterns for the names, before `map`, of tensors that the file may have in addition "
             "to those of the model."),
       field("head", &S::head,
             "by_class_name: the rows of the last layer with parameters, a Linear or Conv2d with "
             "an output for each class, are copied if the file has a class with the same name; the "
             "others keep their initial values. Only a checkpoint of dpt has class names. new: the "
             "last layer with parameters keeps its initial values. Not set: the layer is loaded "
             "like any other; with pretrained, new.")
           .follows(
               "file",
               +[](const S& s) -> PlainValue {
                 if (s.file == kPretrained) return std::string(name_of(HeadRows::fresh));
                 return std::monostate{};
               }),
       field("use", &S::use,
             "Weights to load from a checkpoint of dpt that has an average. ema: the moving "
             "average (train.ema). swa: the average of epochs (train.swa). raw: the weights "
             "themselves. Not set: the average, if the checkpoint has one.")},
      [](const S& s) -> std::string {
        constexpr const char* kDigits = "0123456789abcdef";
        if (s.sha256 &&
            (s.sha256->size() != 64 || s.sha256->find_first_not_of(kDigits) != s.sha256->npos)) {
          return fmt::format("sha256: expected 64 hexadecimal digits in lower case, found '{}'",
                             *s.sha256);
        }
        if (s.file == kPretrained && (!s.map.empty() || s.key)) {
          return "with file: pretrained, dpt knows the names in the file: remove map and key";
        }
        return {};
      });
}

ObjectTable checkpoint_table(const ObjectTable& keep_best) {
  using S = CheckpointSpec;
  return object_table<S>(
      "checkpoint", "Frequency and retention of checkpoints.",
      {field("every", &S::every, "Epochs between checkpoints; 0: only at the end.").at_least(0),
       field("every_steps", &S::every_steps, "Steps between additional checkpoints; 0: none.")
           .at_least(0),
       field("keep_last", &S::keep_last, "Number of checkpoints to keep; older ones are removed.")
           .range(1, 1'000'000),
       object_field("keep_best", &S::keep_best, keep_best, "Choice of the best checkpoint."),
       field("on_failure", &S::on_failure,
             "Reaction to a checkpoint that cannot be written: stop the run, or continue without "
             "it.")});
}

}  // namespace

SpecTables::SpecTables(const Catalog& catalog)
    : val_split(val_split_table()),
      normalize(normalize_table()),
      freeze(freeze_table()),
      ema(ema_table()),
      swa(swa_table()),
      early_stopping(early_stopping_table(catalog.better_direction)),
      on_divergence(on_divergence_table()),
      keep_best(keep_best_table(catalog.better_direction)) {
  transforms = object_table<TransformsSpec>(
      "transforms", "Transforms that are applied to the samples, in order.",
      {variants_field("train", &TransformsSpec::written_train, catalog.transforms, "For training."),
       variants_field("eval", &TransformsSpec::written_eval, catalog.transforms,
                      "For validation and test."),
       variants_field("batch", &TransformsSpec::batch, catalog.batch_transforms,
                      "Transforms of whole training batches, applied after those of train: one is "
                      "chosen for each batch, all with the same probability.")});

  data = object_table<DataSpec>(
      "data", "The data set, and how it is divided into batches.",
      {field("batch_size", &DataSpec::batch_size, "Samples per step, over all devices together.")
           .required()
           .range(1, 1 << 30),
       object_field("val_split", &DataSpec::val_split, val_split,
                    "Training samples held out for validation: their number, or how they are "
                    "chosen.")
           .or_plain("count"),
       field("shuffle", &DataSpec::shuffle, "Shuffle the training samples anew in each epoch."),
       field(
           "sampler", &DataSpec::sampler,
           "Frequency of each training sample. An epoch always has as many draws as training "
           "samples. uniform: each sample once. balanced: each class equally often, regardless of "
           "its number of samples; the samples of a class take turns, even across epochs, and a "
           "sample that is drawn more than once is augmented anew each time. Needs class labels."),
       field("workers", &DataSpec::workers,
             "Number of decoder threads in each process, which all of its replicas share; unused "
             "if the format needs no decoding. auto: one for each core that the replicas leave "
             "free, with a minimum of one per replica.")
           .range(1, 1024)
           .zero_as("auto")
           .changeable(),
       field("prefetch", &DataSpec::prefetch, "Number of batches to decode ahead.")
           .range(1, 1024)
           .changeable(),
       field("on_bad_sample", &DataSpec::on_bad_sample,
             "Reaction to a sample that cannot be read. stop: the run reports it, saves its last "
             "step and ends; samples of the other splits are also read during the first epoch. "
             "skip: the sample is reported. In training, the next readable sample in the order of "
             "the files takes its place, the same on every rank and after a resume; evaluations "
             "leave the sample out. salvage: a damaged or truncated JPEG is used as far as it can "
             "be decoded, in evaluations too, and the rest is grey, as with Pillow's "
             "LOAD_TRUNCATED_IMAGES; any other damage ends the run.")
           .changeable(),
       field("max_bad_samples", &DataSpec::max_bad_samples,
             "With skip: the run ends when a process has found more bad samples than this.")
           .at_least(1)
           .changeable(),
       field("exif_orientation", &DataSpec::exif_orientation,
             "Use of the orientation that cameras and phones store in JPEG, PNG and WebP files. "
             "apply: images are first turned upright. ignore: images are read as stored, as in "
             "torchvision's ImageFolder and in releases without this field. TIFF images are always "
             "turned.")
           .stored_as(std::string(name_of(ExifOrientation::ignore))),
       path_field("cache", &DataSpec::cache,
                  "Folder for a cache of the decoded images (train.pack, val.pack, test.pack). The "
                  "first run creates these files; later runs map them into memory and get the same "
                  "bits. \"\": no cache. A cache is matched to the image files only by their names "
                  "and sizes: remove it after a change that keeps both.")
           .changeable(),
       field("cache_shorter_side", &DataSpec::cache_shorter_side,
             "Shorter side to which images in the cache are resized if theirs is longer. This "
             "saves space and time, but transforms then get the smaller images. full: images keep "
             "their size.")
           .range(1, 16384)
           .zero_as("full"),
       object_field("normalize", &DataSpec::normalize, normalize,
                    "Normalisation of samples: auto, none, or {mean: [...], std: [...]}.")
           .or_plain("mode"),
       object_field("transforms", &DataSpec::transforms, transforms,
                    "Augmentation and normalisation.")});
  data.choice = flat_choice(&DataSpec::dataset, catalog.datasets);
  data.check = [](const void* object) {
    const auto& these = *static_cast<const DataSpec*>(object);
    return these.cache_shorter_side > 0 && these.cache.empty()
               ? "cache_shorter_side applies to data.cache, which is not set: set both, or neither"
               : "";
  };

  Field share_weights =
      field("share_weights", &LayerSpec::share_weights,
            "Name of an earlier layer of the same type whose weights and bias this layer uses; "
            "their shapes must be the same. The layers share these parameters, which have the "
            "earlier layer's name, are saved once, and get the sum of the layers' gradients. In a "
            "block, the name is looked up like those in `from`.");
  share_weights.not_of_blocks = true;
  layer = object_table<LayerSpec>(
      "layer", "One layer or block; the fields of its type are given at the same level.",
      {field("name", &LayerSpec::name,
             "Name in messages and checkpoints; the index in the list if not given."),
       field("from", &LayerSpec::from,
             "Names of the layers or blocks whose outputs this layer reads. They must come before "
             "it; `input` is the model's input, unless an earlier layer has that name. In a block, "
             "a name is looked up in the block first, then in the enclosing blocks. The default is "
             "the previous layer; a layer with several inputs requires this field."),
       std::move(share_weights)});
  sequential = sequential_table(layer);
  residual = residual_table(layer, catalog.layers);
  layer_kinds = catalog.layers;
  layer_kinds.alternatives.push_back(&sequential);
  layer_kinds.alternatives.push_back(&residual);
  layer.choice = flat_choice(&LayerSpec::op, layer_kinds);
  layer.set_where = [](void* object, const Where& at) {
    static_cast<LayerSpec*>(object)->where = at;
  };

  Field patch;
  patch.name = kPatchKey;
  patch.type = FieldType::patch;
  patch.doc = kPatchDoc;
  model = object_table<ModelSpec>(
      "model", "The network: its layers, or a network of the zoo with its options.",
      {field("input", &ModelSpec::input,
             "Shape of one sample: [channels, height, width]. For a network of the zoo, the "
             "default is the shape of the data set's images if all have the same size (digits, "
             "mnist, fashion_mnist, cifar10, cifar100).")
           .given_by_data()
           .range(1, 65536)
           .items(3, 3),
       objects_field("layers", &ModelSpec::written, layer, "The layers and blocks, in order.")
           .required()
           .items(1, kMaxLayers),
       std::move(patch)});
  model.choice = flat_choice(&ModelSpec::zoo, catalog.zoo);
  model.choice.makes = "layers";
  model.set_where = [](void* object, const Where& at) {
    static_cast<ModelSpec*>(object)->where = at;
  };

  loss = object_table<TrainSpec>(
      "loss", "The value that is minimised; the fields of its type are given at the same level.",
      {});
  loss.choice = flat_choice(&TrainSpec::loss, catalog.losses, "cross_entropy");

  warmup = warmup_table();
  schedule = object_table<TrainSpec>(
      "lr_schedule",
      "The learning-rate schedule; the fields of its type are given at the same level.",
      {object_field("warmup", &TrainSpec::warmup, warmup, "Linear warm-up at the start.")});
  schedule.choice = flat_choice(&TrainSpec::lr_schedule, catalog.schedules, "constant");

  train = object_table<TrainSection>(
      "train", "The training loop.",
      {field("epochs", &TrainSection::epochs, "Passes over the training samples.")
           .required()
           .range(1, 1'000'000)
           .changeable(),
       field(
           "on_more_epochs", &TrainSection::on_more_epochs,
           "The learning-rate schedule of a resumed run that has more epochs than before. stretch: "
           "the schedule is fitted to all epochs, so the learning rate may jump. hold: the "
           "schedule ends where it ended before, and the learning rate of its last step is kept. "
           "restart: the schedule begins again after its end, warm-up included, and spans the new "
           "epochs. By default, a change of epochs that changes the learning rate is refused.")
           .changeable(),
       field("shards", &TrainSection::shards,
             "auto: fast mode. A number N: exact mode with N shards, whose results are "
             "bit-identical on 1 to N replicas, if each replica has the same number of threads.")
           .range(1, 65536)
           .zero_as("auto"),
       field("accumulate", &TrainSection::accumulate,
             "Gradient accumulation: each replica (in exact mode, each shard) processes its part "
             "of the batch in at least N micro-batches, in sequence, and a step uses the gradient "
             "of the whole batch. Activations then need less memory. Micro-batches are even "
             "smaller if the caches or, in fast mode, the device's memory require it. Batch "
             "normalisation still normalises over all micro-batches together and keeps its inputs "
             "until all have run; more shards reduce this memory too.")
           .range(1, 65536)
           .changeable(),
       field("grad_clip_norm", &TrainSection::grad_clip_norm,
             "Maximum norm of the gradient of all parameters; a gradient with a larger norm is "
             "scaled down to it.")
           .range(1e-30, 1e38),
       field("grad_clip_value", &TrainSection::grad_clip_value,
             "Maximum absolute value of each element of the gradient, like torch's "
             "clip_grad_value_; not together with grad_clip_norm.")
           .range(1e-30, 1e38),
       object_field("freeze", &TrainSection::freeze, freeze,
                    "Parameters that are not trained: a list of patterns, or {params: [...], "
                    "except: [...]}; {except: [\"fc.*\"]} freezes all but fc. No gradient is "
                    "computed where none is needed. If all tensors of a BatchNorm match, it uses "
                    "its running statistics and leaves them as they are.")
           .or_plain("params"),
       object_field("ema", &TrainSection::ema, ema, "A moving average of the weights."),
       object_field("swa", &TrainSection::swa, swa,
                    "An equal average of the weights after the last epochs; not together with "
                    "ema."),
       object_field(
           "early_stopping", &TrainSection::early_stopping, early_stopping,
           "Early stopping: ends training before the last epoch. A resumed run may change these "
           "fields: a run that has stopped early continues if it gets more patience.")
           .changeable(),
       object_field("on_divergence", &TrainSection::on_divergence, on_divergence,
                    "Reaction to a step with a non-finite loss, gradient or update.")
           .changeable(),
       field("precision", &TrainSection::precision,
             "Arithmetic: fp32; tf32 (fp32 with the operands of matrix products rounded to a "
             "10-bit mantissa, NVIDIA GPUs only); bf16 (activations and copies of the weights in "
             "bf16; weights, sums and statistics in fp32; on a CPU only with AVX512-BF16 or AMX)."),
       field("autotune", &TrainSection::autotune,
             "On NVIDIA GPUs: time the implementations of each convolution and linear layer once "
             "and cache the choice for later runs. Exact mode never does this."),
       field("self_check", &TrainSection::self_check,
             "Compare the kernels of each layer with a reference in double precision before the "
             "first step: auto (only kernels that this build of dpt has not yet checked on this "
             "device, with these libraries and this driver), always or never. In fast mode, other "
             "kernels replace a wrong one if there are any. Otherwise, the run ends with exit code "
             "4 before it trains anything.")
           .changeable(),
       field(
           "stall_timeout", &TrainSection::stall_timeout,
           "Seconds without progress after which a replica that others wait for, or a GPU, counts "
           "as stalled: the run ends with exit code 6. Time in which the process is suspended does "
           "not count, and a slow replica that is still reading, computing or saving is not "
           "stalled: a single "
           "sync, write or rename may take 30 minutes.")
           .range(0.01, 31'536'000)
           .changeable()},
      &problem_of_train);

  weights = weights_table();
  checkpoint = checkpoint_table(keep_best);
  log = object_table<LogSpec>(
      "log", "Contents of metrics.jsonl.",
      {field("every", &LogSpec::every, "Steps between log lines; the first step always has one.")
           .at_least(1),
       field("tensorboard", &LogSpec::tensorboard,
             "Also write the contents of the log as TensorBoard event files, to tensorboard/ in "
             "the run folder."),
       path_field("prometheus", &LogSpec::prometheus,
                  "File NAME.prom with the state of the run for Prometheus, which the textfile "
                  "collector of node_exporter reads; replaced about every second. Each run needs "
                  "its own file, in an existing folder. \"\": no file.")});
  for (auto at = log.fields.begin() + 1; const auto& [name, doc] : catalog.measurements) {
    at = log.fields.insert(at, measurement_field(name, doc)) + 1;
  }

  root = object_table<TrainSpec>(
      "config", "A dpt config file.",
      {field("version", &TrainSpec::version, "Version of the config format.").range(1, 1),
       field("name", &TrainSpec::name,
             "Name of the run and its folder; the file's name without .yaml if not given."),
       field("seed", &TrainSpec::seed, "Seed of all random draws.").at_least(0),
       object_field("data", &TrainSpec::data, data, "The data set.").required(),
       object_field("model", &TrainSpec::model, model, "The network.").required(),
       same_object_field("loss", loss, "The value that is minimised."),
       variants_field("metrics", &TrainSpec::metrics, catalog.metrics,
                      "Metrics in addition to the loss and the accuracy."),
       variant_field("optimizer", &TrainSpec::optimizer, catalog.optimizers, "The optimizer.")
           .required(),
       same_object_field("lr_schedule", schedule, "The learning-rate schedule."),
       object_field("train", &TrainSpec::train, train, "The training loop.").required(),
       object_field("weights", &TrainSpec::weights, weights,
                    "The weights that a new run starts from; a plain value sets `file`.")
           .or_plain("file"),
       object_field("checkpoint", &TrainSpec::checkpoint, checkpoint,
                    "Frequency and retention of checkpoints.")
           .changeable(),
       object_field("log", &TrainSpec::log, log, "Contents and frequency of the log.").changeable(),
       field("devices", &TrainSpec::devices,
             "A list with one entry per replica (cpu, cpu:4 with 4 threads, cuda:0), or one word. "
             "auto: one replica per GPU or, without a GPU, per physical CPU core. cuda: one "
             "replica per GPU. cpu: one replica with one thread.")
           .items(1, 65536)
           .changeable(),
       field("device_weights", &TrainSpec::device_weights,
             "Division of the work among the devices: one number per device, such as [9, 1]; only "
             "their ratio matters. auto: equal, or in proportion to the threads of CPU replicas. "
             "If CPUs and GPUs train together, `dpt bench` prints the numbers to write here.")
           .above(0)
           .items(1, 65536)
           .zero_as("auto")
           .changeable()
           .formerly("shares")});
}

}  // namespace dpt
