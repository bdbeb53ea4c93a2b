// Invalid configs checked against all built-in kinds: the exact text of every error.
//
// In the expected texts, "@kinds" and "@keys" stand for lists of known names from the catalog, so
// that a new layer or field changes nothing here. "@any" stands for messages of yaml-cpp, which
// differ between its versions.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "app/base/catalog.h"
#include "engine/config/issue.h"
#include "engine/config/read_spec.h"
#include "engine/config/spec_tables.h"
#include "engine/graph/make_plan.h"
#include "engine/graph/plan.h"

using namespace dpt;
using Texts = std::vector<std::string>;

namespace {

const std::string kGoodConfig = R"(version: 1
name: bad
data:
  dataset: digits
  val_split: 137
  batch_size: 32
  transforms:
    train: [{type: RandomCrop, size: 8, padding: 1}, {type: Normalize, mean: [0.3], std: [0.4]}]
    eval: [{type: Normalize, mean: [0.3], std: [0.4]}]
model:
  input: [1, 8, 8]
  layers:
    - {type: Conv2d, name: conv1, out_channels: 8, kernel_size: 3, padding: 1}
    - {type: ReLU}
    - {type: MaxPool2d, kernel_size: 2}
    - {type: Flatten}
    - {type: Linear, name: fc1, out_features: 10}
optimizer: {type: SGD, lr: 0.05, momentum: 0.9}
lr_schedule: {type: cosine, warmup: {epochs: 1}}
train: {epochs: 5}
)";

struct BadConfig {
  std::vector<std::pair<std::string, std::string>> changes;  ///< edits of kGoodConfig
  Texts issues;                                              ///< "line:column: text"
};

std::string bad_text(const BadConfig& bad) {
  std::string text = kGoodConfig;
  for (const auto& [from, to] : bad.changes) {
    const std::size_t at = text.find(from);
    REQUIRE_MESSAGE(at != std::string::npos, from);
    text.replace(at, from.size(), to);
  }
  return text;
}

/// Returns the issues that `dpt config check` finds: those of the text or, if the text is valid,
/// those of the shapes.
Texts issues_of(const std::string& text) {
  const ReadResult result = read_spec_text(catalog(), text, "c");
  Texts issues;
  for (const ConfigIssue& issue : result.issues) {
    issues.push_back(issue.where.text().substr(2) + ": " + issue.text);
  }
  if (!issues.empty()) return issues;
  try {
    make_plan(result.spec);
  } catch (const Error& error) {
    issues.push_back(std::string(error.what()).substr(2));
  }
  return issues;
}

const VariantTable& kinds_called(const std::string& what) {
  static const SpecTables tables(catalog());
  const Catalog& all = catalog();
  for (const VariantTable* table :
       {&tables.layer_kinds, &all.optimizers, &all.schedules, &all.datasets, &all.transforms}) {
    if (table->what == what) return *table;
  }
  throw std::logic_error("no table of kinds: " + what);
}

std::string kind_names(const std::string& what) {
  Texts names;
  for (const ObjectTable* kind : kinds_called(what).alternatives) names.push_back(kind->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Returns the keys of "layer Conv2d", "data set digits", "train" or "the config".
std::string key_names(const std::string& owner) {
  const SpecTables tables(catalog());
  Texts names;
  const auto add = [&](const std::vector<Field>& fields) {
    for (const Field& field : fields) names.push_back(field.name);
  };
  if (owner == "the config" || owner == "train") {
    add(owner == "train" ? tables.train.fields : tables.root.fields);
    if (owner != "train") names.emplace_back("extends");
    return fmt::format("{}", fmt::join(names, ", "));
  }
  const std::size_t space = owner.rfind(' ');
  const std::string what = owner.substr(0, space);
  const VariantTable& kinds = kinds_called(what);
  names.push_back(kinds.tag);
  if (kinds.what == "layer") add(tables.layer.fields);
  if (kinds.what == "data set") add(tables.data.fields);
  if (kinds.what == "lr_schedule") add(tables.schedule.fields);
  for (const ObjectTable* kind : kinds.alternatives) {
    if (kind->name == owner.substr(space + 1)) add(kind->fields);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string filled_in(std::string text) {
  for (const char* word : {"@kinds(", "@keys("}) {
    const std::size_t at = text.find(word);
    if (at == std::string::npos) continue;
    const std::size_t begin = at + std::string(word).size();
    const std::size_t end = text.find(')', begin);
    const std::string what = text.substr(begin, end - begin);
    text.replace(at, end + 1 - at,
                 word[1] == 'k' && word[2] == 'i' ? kind_names(what) : key_names(what));
  }
  return text;
}

void check(const BadConfig& bad) {
  const std::string text = bad_text(bad);
  const Texts found = issues_of(text);
  CHECK_MESSAGE(found.size() == bad.issues.size(), fmt::format("{}", fmt::join(found, "\n")));
  for (std::size_t i = 0; i < std::min(found.size(), bad.issues.size()); ++i) {
    std::string expected = filled_in(bad.issues[i]);
    const std::size_t any = expected.find("@any");
    if (any == std::string::npos) {
      CHECK(found[i] == expected);
    } else {
      expected.resize(any);
      CHECK(found[i].substr(0, any) == expected);
    }
  }
}

const std::vector<BadConfig> kOneError = {
    {{{"kernel_size: 3", "kernal_size: 3"}},
     {"13:52: unknown key 'kernal_size' in layer Conv2d, did you mean 'kernel_size'? Known keys: "
      "@keys(layer Conv2d)"}},
    {{{"out_channels: 8", "filters: 8"}},
     {"13:35: unknown key 'filters' in layer Conv2d, did you mean 'out_channels'? Known keys: "
      "@keys(layer Conv2d)"}},
    {{{"out_features: 10", "units: 10"}},
     {"17:33: unknown key 'units' in layer Linear, did you mean 'out_features'? Known keys: "
      "@keys(layer Linear)"}},
    {{{"kernel_size: 2", "pool_size: 2"}},
     {"15:25: unknown key 'pool_size' in layer MaxPool2d, did you mean 'kernel_size'? Known keys: "
      "@keys(layer MaxPool2d)"}},
    {{{"lr: 0.05", "learning_rate: 0.05"}},
     {"18:24: unknown key 'learning_rate' in optimizer SGD, did you mean 'lr'? Known keys: "
      "@keys(optimizer SGD)"}},
    {{{"batch_size: 32", "batchsize: 32"}},
     {"6:3: unknown key 'batchsize' in data set digits, did you mean 'batch_size'? Known keys: "
      "@keys(data set digits)"}},
    {{{"epochs: 5", "epochs: 5, lr: 0.1"}},
     {"20:20: unknown key 'lr' in train, did you mean 'optimizer.lr'? Known keys: @keys(train)"}},
    {{{"epochs: 5}", "epochs: 5}\nbatch_size: 32"}},
     {"21:1: unknown key 'batch_size' in the config, did you mean 'data.batch_size'? Known keys: "
      "@keys(the config)"}},
    {{{"epochs: 5}", "epochs: 5}\nlearning_rate: 1"}},
     {"21:1: unknown key 'learning_rate' in the config, did you mean 'optimizer.lr'? Known keys: "
      "@keys(the config)"}},
    {{{"type: ReLU", "type: ReLU, inplace: true"}},
     {"14:20: unknown key 'inplace' in layer ReLU. Known keys: @keys(layer ReLU)"}},
    {{{"type: ReLU", "type: ReLU, out_features: 2"}},
     {"14:20: unknown key 'out_features' in layer ReLU; it belongs to Linear. Known keys: "
      "@keys(layer ReLU)"}},
    {{{"dataset: digits", "dataset: digits\n  difficulty: 0.5"}},
     {"5:3: unknown key 'difficulty' in data set digits; it belongs to synthetic. Known keys: "
      "@keys(data set digits)"}},
    {{{"type: SGD, lr: 0.05, momentum: 0.9", "type: Adam, lr: 0.05, momentum: 0.9"}},
     {"18:35: unknown key 'momentum' in optimizer Adam; it belongs to SGD, RMSprop, LARS. Known "
      "keys: "
      "@keys(optimizer Adam)"}},
    {{{"type: cosine,", "type: cosine, gamma: 0.1,"}},
     {"19:29: unknown key 'gamma' in lr_schedule cosine; it belongs to step, multistep, "
      "exponential. Known "
      "keys: @keys(lr_schedule cosine)"}},
    {{{"name: bad", "name: bad\nname: worse"}},
     {"3:1: duplicate key 'name': first defined in line 2"}},
    {{{"type: Conv2d", "type: Conv2D"}},
     {"13:14: unknown layer 'Conv2D', did you mean 'Conv2d'? Known layers: @kinds(layer)"}},
    {{{"type: Linear", "type: Dense"}},
     {"17:14: unknown layer 'Dense', did you mean 'Linear'? Known layers: @kinds(layer)"}},
    {{{"type: MaxPool2d", "type: Pooling"}},
     {"15:14: unknown layer 'Pooling', did you mean MaxPool2d or AvgPool2d? Known layers: "
      "@kinds(layer)"}},
    {{{"type: Conv2d", "type: Conv3d"}},
     {"13:14: unknown layer 'Conv3d', did you mean 'Conv2d'? Known layers: @kinds(layer)"}},
    {{{"type: ReLU", "type: Relu"}},
     {"14:14: unknown layer 'Relu', did you mean 'ReLU'? Known layers: @kinds(layer)"}},
    {{{"type: Linear", "type: Transformer"}},
     {"17:14: unknown layer 'Transformer'. Known layers: @kinds(layer)"}},
    {{{"{type: ReLU}", "{name: act}"}},
     {"14:7: missing key 'type' in model.layers.1. Known layers: @kinds(layer)"}},
    {{{"{type: ReLU}", "ReLU"}},
     {"14:7: expected a mapping for model.layers.1, found 'ReLU'; its keys are type, name, from, "
      "share_weights; write {type: ReLU}"}},
    {{{"type: SGD", "type: sgd"}},
     {"18:19: unknown optimizer 'sgd', did you mean 'SGD'? Known optimizers: @kinds(optimizer)"}},
    {{{"momentum: 0.9}", "momentum: 0.9, groups: [{match: '*.bias'}, {match: [conv2.*], lr: 2}]}"}},
     {"18:96: unknown key 'lr' in optimizer.groups.1, did you mean 'optimizer.lr'? Known keys: "
      "match, "
      "weight_decay, lr_scale"}},
    {{{"momentum: 0.9}", "momentum: 0.9, groups: [{weight_decay: 0}]}"}},
     {"18:58: missing key 'match' in optimizer.groups.0: Patterns for names of parameters, such as "
      "\"*.bias\". A star matches any number of characters, a question mark one; the first group "
      "that matches a parameter is its group."}},
    {{{"epochs: 5}", "epochs: 5, grad_clip_norm: 1, grad_clip_value: 1}"}},
     {"20:8: train: expected grad_clip_norm or grad_clip_value, found both"}},
    {{{"type: SGD", "type: Adafactor"}},
     {"18:19: unknown optimizer 'Adafactor'. Known optimizers: @kinds(optimizer)"}},
    {{{"dataset: digits", "dataset: FashionMNIST"}},
     {"4:12: unknown data set 'FashionMNIST', did you mean 'fashion_mnist'? Known data sets: "
      "@kinds(data set)"}},
    {{{"dataset: digits", "dataset: imagenet"}},
     {"4:12: unknown data set 'imagenet', did you mean 'image_folder'? Known data sets: "
      "@kinds(data set)"}},
    {{{"dataset: digits", "root: x"}},
     {"4:3: missing key 'dataset' in data. Known data sets: @kinds(data set)"}},
    {{{"type: cosine", "type: CosineAnnealingLR"}},
     {"19:21: unknown lr_schedule 'CosineAnnealingLR', did you mean 'cosine'? Known lr_schedules: "
      "@kinds(lr_schedule)"}},
    {{{"type: RandomCrop", "type: RandomPerspective"}},
     {"8:20: unknown transform 'RandomPerspective'. Known transforms: @kinds(transform)"}},
    {{{"dataset: digits", "dataset: mnist"}},
     {"4:3: missing key 'root' in data set mnist: Folder with the four IDX files, plain or .gz "
      "(scripts/fetch-data mnist)."}},
    {{{"epochs: 5", "epochs: 0"}}, {"20:17: expected an integer from 1 to 1000000, found 0"}},
    {{{"epochs: 5", "epochs: 010"}},
     {"20:17: expected an integer from 1 to 1000000, found '010'; a leading zero means octal to "
      "some YAML readers and is not accepted; write 10"}},
    {{{"epochs: 5", "epochs: ten"}}, {"20:17: expected an integer from 1 to 1000000, found 'ten'"}},
    {{{"epochs: 5", "epochs: 1e2"}},
     {"20:17: expected an integer from 1 to 1000000, found 1e2; write 100"}},
    {{{"epochs: 5", "epochs: '5'"}},
     {"20:17: expected an integer from 1 to 1000000, found '5'; remove the quotes"}},
    {{{"batch_size: 32", "batch_size: -1"}},
     {"6:15: expected an integer from 1 to 1073741824, found -1"}},
    {{{"batch_size: 32", "batch_size: 1_000"}},
     {"6:15: expected an integer from 1 to 1073741824, found '1_000'; only decimal digits are "
      "accepted"}},
    {{{"lr: 0.05", "lr: -0.1"}}, {"18:28: expected a number of at least 0, found -0.1"}},
    {{{"lr: 0.05", "lr: .nan"}},
     {"18:28: expected a number of at least 0, found '.nan'; it must be finite"}},
    {{{"lr: 0.05", "lr: 0,05"}},
     {"18:30: unknown key '05' in optimizer SGD, did you mean 'lr: 0.05'? Known keys: "
      "@keys(optimizer SGD)"}},
    {{{"lr: 0.05", "lr: 0.05, nesterov: yes"}},
     {"18:44: expected true or false, found 'yes'; write true"}},
    {{{"padding: 1}", "padding: -1}"}}, {"8:50: expected an integer from 0 to 1024, found -1"}},
    {{{"kernel_size: 3", "kernel_size: [3, 3, 3]"}},
     {"13:65: expected an integer from 1 to 1024 or [height, width], found a list of 3"}},
    {{{"kernel_size: 3", "kernel_size: 3x3"}},
     {"13:65: expected an integer from 1 to 1024 or [height, width], found '3x3'"}},
    {{{"input: [1, 8, 8]", "input: [8, 8]"}},
     {"11:10: expected a list of 3 integers, each from 1 to 65536, found a list of 2"}},
    {{{"input: [1, 8, 8]", "input: 1x8x8"}},
     {"11:10: expected a list of 3 integers, each from 1 to 65536, found '1x8x8'"}},
    {{{"mean: [0.3]", "mean: 0.3"}}, {"8:78: expected a list of numbers, found 0.3; write [0.3]"}},
    {{{"epochs: 5", "epochs: 5, shards: all"}},
     {"20:28: expected auto or an integer from 1 to 65536, found 'all'"}},
    {{{"epochs: 5", "epochs: 5, precision: fp16"}},
     {"20:31: expected one of fp32, tf32, bf16, found 'fp16'"}},
    {{{"epochs: 5", "epochs: 5, grad_clip_norm: 0"}},
     {"20:36: expected a number from 1e-30 to 1e+38, found 0"}},
    {{{"epochs: 5", "epochs: 5, grad_clip_norm: 1e-44"}},
     {"20:36: expected a number from 1e-30 to 1e+38, found 1e-44"}},
    {{{"warmup: {epochs: 1}", "warmup: {epochs: 1e300}"}},
     {"19:46: expected a number from 0 to 1000000, found 1e300"}},
    {{{"name: bad", "name: 7"}},
     {"2:7: expected a string, found 7; put it into quotes to make it a string"}},
    {{{"name: bad", "name: ../bad"}},
     {"2:7: expected a name for a folder (no '/', not starting with '.'), found '../bad'"}},
    {{{"version: 1", "version: 2"}},
     {"1:10: expected a config of version 1, found version 2: it was written for a newer dpt"}},
    {{{"lr: 0.05, momentum: 0.9", "lr: 0.05, nesterov: true"}},
     {"18:12: optimizer SGD: nesterov: true needs a momentum above 0 and a dampening of 0, found "
      "momentum: 0 and dampening: 0"}},
    {{{"epochs: 1}", "epochs: 1, steps: 3}"}},
     {"19:37: lr_schedule.warmup: expected 'epochs' or 'steps', found both"}},
    {{{"name: fc1", "name: conv1"}},
     {"17:28: expected a unique layer name, found 'conv1', which is also the name of layer 0 in "
      "line "
      "13"}},
    {{{"type: Flatten", "type: Flatten, from: relu"}},
     {"16:29: expected the name of an earlier layer in 'from', found 'relu'. Earlier layers: "
      "conv1, 1, 2"}},
    {{{"val_split: 137", "val_split: 0"},
      {"epochs: 5", "epochs: 5, early_stopping: {patience: 2}"}},
     {"20:36: early_stopping monitors val/accuracy, but there are no validation samples: set "
      "data.val_split"}},
    {{{"val_split: 137", "val_split: 0"},
      {"epochs: 5}", "epochs: 5}\ncheckpoint: {keep_best: {monitor: val/loss}}"}},
     {"21:35: keep_best monitors val/loss, but there are no validation samples: set "
      "data.val_split, or keep "
      "the "
      "last checkpoint (checkpoint.keep_best={})"}},
    {{{"epochs: 5}", "epochs: 5}\ncheckpoint: {keep_best: {monitor: val/loss, mode: max}}"}},
     {"21:25: checkpoint.keep_best: expected mode: min with monitor: val/loss, found max"}},
    {{{"epochs: 5}", "epochs: 5}\ncheckpoint: {keep_best: {monitor: accuracy}}"}},
     {"21:35: expected one of val/accuracy, val/loss, found 'accuracy'; did you mean "
      "'val/accuracy'?"}},
    {{{"epochs: 5}", "epochs: 5}\ndevices: gpu:0"}},
     {"21:10: expected a device: auto, cpu, cpu:N (N threads), cuda or cuda:N (the N-th GPU from "
      "0), found 'gpu:0'; write cuda:0"}},
    {{{"epochs: 5}", "epochs: 5}\ndevices: [cpu, auto]"}},
     {"21:16: expected 'auto' on its own, found it in a list"}},
    {{{"epochs: 5}", "epochs: 5}\ndevices: [cpu, cuda]"}},
     {"21:16: expected 'cuda' on its own, found it in a list"}},
    {{{"epochs: 5}", "epochs: 5}\ndevices: cpu\ndevice_weights: [1, 2, 3]"}},
     {"22:17: device_weights has 3 numbers, [1, 2, 3], but there is 1 device, [cpu]: give "
      "one "
      "weight per device, or device_weights=auto"}},
    {{{"epochs: 5}", "epochs: 5, shards: 2}\ndevices: [cpu, cpu, cpu]"}},
     {"20:28: train.shards is 2, but 3 replicas were requested: exact mode needs at least one "
      "shard "
      "per replica. Use fewer devices, or train.shards=3"}},
    {{{"epochs: 5}", "epochs: 5}\nloss: {type: nll}"}},
     {"21:14: unknown loss 'nll', did you mean cross_entropy, which takes the log-softmax of the "
      "logits itself? Known losses: cross_entropy, bce_with_logits, mse, l1, smooth_l1"}},
    {{{"epochs: 5}", "epochs: 5}\nmetrics: [{type: top5}]"}},
     {"21:18: unknown metric 'top5', did you mean 'top_k'? Known metrics: accuracy, top_k, "
      "per_class_accuracy, mean_absolute_error, r2, f1, precision, recall, auroc, "
      "average_precision"}},
    {{{"epochs: 5}", "epochs: 5}\nloss: {class_weights: balance}"}},
     {"21:23: expected balanced or a list of at least 1 number, each from 0 to 1000000000, found "
      "'balance'"}},
    {{{"epochs: 5}", "epochs: 5}\nloss: cross_entropy"}},
     {"21:7: expected a mapping for loss, found 'cross_entropy'; its keys are type; write "
      "{type: cross_entropy}"}},
    {{{"type: cosine", "type: step"}},
     {"19:14: missing key 'step_size' in lr_schedule step: Epochs (or steps) between two decays."}},
    {{{"type: cosine", "type: multistep, milestones: [3, 2]"}},
     {"19:14: lr_schedule multistep: milestones: expected epochs above 0, increasing, found 2 "
      "after 3"}},
    {{{"type: SGD, lr: 0.05, momentum: 0.9", "type: Adam, betas: [0.9]"}},
     {"18:32: expected a list of 2 numbers, found a list of 1"}},
    {{{"type: SGD, lr: 0.05, momentum: 0.9", "type: Adam, betas: [0.9, 1.5]"}},
     {"18:12: optimizer Adam: betas: expected numbers of at least 0 and below 1, found 1.5"}},
    {{{"type: Conv2d,", "type: Conv2d, weight_init: he_normal,"}},
     {"13:35: expected one of default, xavier_uniform, xavier_normal, kaiming_uniform, "
      "kaiming_normal, normal, constant, found 'he_normal'; did you mean 'kaiming_normal'?"}},
    {{{"type: Conv2d,", "type: Conv2d, weight_init: constant,"}},
     {"13:7: layer Conv2d: weight_init: constant needs weight_init_value"}},
    {{{"  dataset: digits", "\tdataset: digits"}}, {"4:9: not valid YAML: @any"}},
    {{{"[1, 8, 8]", "[1, 8, 8"}}, {"12:9: not valid YAML: @any"}},
    {{{"train: {", "train: &t {again: *t, "}},
     {"20:12: unknown key 'again' in train. Known keys: @keys(train)",
      "20:19: an alias refers to a value that contains it: a config cannot be cyclic"}},
    {{{"lr: 0.05", "lr: !!float 0.05"}},
     {"18:28: the tag 'tag:yaml.org,2002:float' is not accepted: a config has plain values only"}},
    {{{"epochs: 5}", "epochs: 5}\n---\nversion: 1"}},
     {"22:1: expected one YAML document, found a second one after '---'"}},
    {{{"optimizer: {type: SGD,", "optimizer: {<<: *x, type: SGD,"}},
     {"18:13: merge keys (<<) are not supported: write the fields out, or put the common part into "
      "a file and name it with 'extends'",
      "18:17: not valid YAML: @any"}},
    {{{"dataset: digits", "dataset: digits\n  root: ${NO_SUCH_VARIABLE}/d"}},
     {"5:9: the environment variable NO_SUCH_VARIABLE is not set: set it, or give a default as in "
      "${NO_SUCH_VARIABLE:-folder}"}},
    {{{"kernel_size: 3, padding: 1", "kernel_size: 9"}},
     {"13:7: layer 'conv1' (Conv2d): kernel_size 9x9 does not fit its input of 1x8x8 (C x H x W): "
      "it covers 9x9 pixels and the padded input has 8x8; make the kernel smaller, add padding, or "
      "downsample less before it"}},
    {{{"    - {type: Flatten}\n", ""}},
     {"16:7: layer 'fc1' (Linear): expected a vector as input, found an image of 8x4x4 (C x H x "
      "W); add {type: Flatten} before it"}},
    {{{"out_channels: 8", "out_channels: 8, groups: 3"}},
     {"13:7: layer 'conv1' (Conv2d): groups 3 must divide both the channels of its input, 1, and "
      "out_channels, 8"}},
    {{{"kernel_size: 2}", "kernel_size: 2, padding: 2}"}},
     {"15:7: layer '2' (MaxPool2d): padding 2x2 is more than half of kernel_size 2x2: windows at "
      "the border would contain only padding; use a padding of at most 1x1"}},
};

const std::vector<BadConfig> kSeveralErrors = {
    {{{"version: 1", "versoin: 1"}, {"epochs: 5", "epochs: 0"}},
     {"1:1: unknown key 'versoin' in the config, did you mean 'version'? Known keys: @keys(the "
      "config)",
      "20:17: expected an integer from 1 to 1000000, found 0"}},
    {{{"type: Conv2d", "type: Conv2D"},
      {"type: Linear", "type: Dense"},
      {"type: SGD", "type: Sgd"}},
     {"13:14: unknown layer 'Conv2D', did you mean 'Conv2d'? Known layers: @kinds(layer)",
      "17:14: unknown layer 'Dense', did you mean 'Linear'? Known layers: @kinds(layer)",
      "18:19: unknown optimizer 'Sgd', did you mean 'SGD'? Known optimizers: @kinds(optimizer)"}},
    {{{"kernel_size: 3", "kernal_size: 3"},
      {"kernel_size: 2", "kernel_size: 0"},
      {"out_features: 10", "out_features: ten"},
      {"name: fc1", "name: f 1"}},
     {"13:52: unknown key 'kernal_size' in layer Conv2d, did you mean 'kernel_size'? Known keys: "
      "@keys(layer Conv2d)",
      "15:38: expected an integer from 1 to 1024 or [height, width], found 0",
      "17:28: expected a layer name of letters, digits, '_', '-' and '.', found 'f 1'",
      "17:47: expected an integer from 1 to 16777216, found 'ten'"}},
    {{{"batch_size: 32", "batch_size: 0"},
      {"val_split: 137", "val_split: -1\n  val_split: 3"},
      {"mean: [0.3]", "mean: [x]"},
      {"size: 8", "size: []"}},
     {"5:14: expected an integer of at least 0, found -1",
      "6:3: duplicate key 'val_split': first defined in line 5",
      "7:15: expected an integer from 1 to 1073741824, found 0",
      "9:38: expected an integer from 1 to 16384 or [height, width], found an empty list",
      "9:80: expected a number, found 'x'"}},
    {{{"name: bad", "name:"},
      {"lr: 0.05", "lr: '0.05'"},
      {"momentum: 0.9", "nesterov: on"},
      {"epochs: 1", "steps: 1.5"},
      {"epochs: 5", "epochs: 5, shards: 0x8"}},
     {"2:1: expected a string, found nothing",
      "18:28: expected a number of at least 0, found '0.05'; remove the quotes",
      "18:46: expected true or false, found 'on'; write true",
      "19:45: expected an integer of at least 0, found 1.5",
      "20:28: expected auto or an integer from 1 to 65536, found '0x8'; only decimal digits are "
      "accepted"}},
    {{{"optimizer: {type: SGD, lr: 0.05, momentum: 0.9}\n", ""}, {"train: {epochs: 5}\n", ""}},
     {"1:1: missing key 'optimizer' in the config: The optimizer.",
      "1:1: missing key 'train' in the config: The training loop."}},
    {{{"type: ReLU", "type: ReLU, from: fc1"},
      {"type: Flatten", "type: Flatten, from: [conv, conv1]"},
      {"epochs: 5}", "epochs: 5}\ndevices: [cpu:0, cuda:x, tpu]"}},
     {"14:26: expected the name of an earlier layer in 'from', found 'fc1', which does not come "
      "before this layer",
      "16:30: expected the name of an earlier layer in 'from', found 'conv', did you mean 'conv1'? "
      "Earlier layers: conv1, 1, 2",
      "21:11: expected a device: auto, cpu, cpu:N (N threads), cuda or cuda:N (the N-th GPU from "
      "0), found 'cpu:0'",
      "21:18: expected a device: auto, cpu, cpu:N (N threads), cuda or cuda:N (the N-th GPU from "
      "0), found 'cuda:x'",
      "21:26: expected a device: auto, cpu, cpu:N (N threads), cuda or cuda:N (the N-th GPU from "
      "0), found 'tpu'"}},
};

}  // namespace

TEST_CASE("the config that is spoilt below is good") {
  CHECK(issues_of(kGoodConfig) == Texts{});
}

TEST_CASE("each mistake in a config is reported with its place and what to write") {
  CHECK(kOneError.size() >= 45);
  for (const BadConfig& bad : kOneError) check(bad);
}

TEST_CASE("all mistakes of a config are reported at once, from top to bottom") {
  CHECK(kSeveralErrors.size() >= 5);
  for (const BadConfig& bad : kSeveralErrors) {
    CHECK(bad.issues.size() > 1);
    check(bad);
  }
}
