// dpt config check|show|schema|reference|init.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "app/catalog.h"
#include "app/command_support.h"
#include "app/commands.h"
#include "app/console.h"
#include "app/misfits.h"
#include "app/start_weights.h"
#include "engine/data/host_pipeline.h"
#include "engine/data/input_draws.h"
#include "engine/graph/plan.h"
#include "engine/losses/loss.h"
#include "engine/metrics/metric.h"
#include "engine/optimizers/optimizer.h"
#include "engine/schedules/schedule.h"
#include "engine/spec/read_spec.h"
#include "engine/spec/secrets.h"

namespace dpt {
namespace {

/// Calls `check`; what is wrong with the config becomes more lines of `errors`.
template <class Check>
void collect_errors(std::string& errors, Check check) {
  try {
    check();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    errors += (errors.empty() ? "" : "\n") + std::string(error.what());
  }
}

/// Checks all that needs no data, and throws one Error with a line for each thing that is wrong.
Plan check_without_data(const TrainSpec& spec) {
  std::string errors;
  Plan plan;
  collect_errors(errors, [&] { plan = make_plan(spec); });
  // The shape of the data set's images is not known here. They have the model's channels, and
  // with its height and width too nothing is refused that would fit some data set.
  const std::vector<std::int64_t>& input = spec.model.input;
  const SampleShape shape{input[1], input[2], input[0]};
  const TransformsSpec& transforms = spec.data.transforms;
  for (const std::vector<Variant>* list : {&transforms.train, &transforms.eval}) {
    collect_errors(errors, [&] { check_transforms(*list, shape); });
  }
  collect_errors(errors, [&] { check_evaluation_transforms(transforms); });
  collect_errors(errors, [&] {
    if (!plan.params.empty()) plan_update(make_optimizer(spec.optimizer), param_places(plan));
  });
  collect_errors(errors, [&] { make_lr_schedule(spec, make_optimizer(spec.optimizer).lr, 1); });
  collect_errors(errors, [&] {
    if (plan.classes == 0) return;  // The model is wrong, which has been said.
    check_outputs(spec, plan.classes);
    // How many samples a class has is not known here: as many as any other.
    const auto equal = [&] {
      return std::vector<std::int64_t>(static_cast<std::size_t>(plan.classes), 1);
    };
    const LossContext context{plan.classes, {}, equal};
    const Loss loss = make_loss(spec.loss, context);
    make_mixed_loss(spec, context, loss);
    make_metrics(spec.metrics,
                 {plan.classes, spec.loss.type, loss.has_errors, TargetKind::class_index});
  });
  if (!errors.empty()) throw Error(ErrorKind::usage, errors);
  return plan;
}

/// "8x8 and 6x9": sizes of some pictures that can be read, as messages name them.
std::string sizes_in(const DataSource& source) {
  constexpr std::size_t kMostRead = 64, kMostNamed = 4;
  std::vector<std::string> sizes;
  std::size_t read = 0;
  for (const std::int64_t index : source.samples_to_try()) {
    if (++read > kMostRead || sizes.size() == kMostNamed) break;
    std::string size;
    std::int32_t label = 0;
    const ChoosePart note_size = [&](std::int64_t height, std::int64_t width) {
      size = fmt::format("{}x{}", height, width);
      return whole_picture(height, width, 1, 1);
    };
    try {
      source.read_part(index, note_size, label);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
    }
    if (!size.empty() && std::find(sizes.begin(), sizes.end(), size) == sizes.end()) {
      sizes.push_back(size);
    }
  }
  return fmt::format("{}", fmt::join(sizes, ", "));
}

/// What training would refuse of the transforms: here each is under pictures of sizes of their own.
void check_sizes(const TrainSpec& spec, const DataSets& sets,
                 const DataRequirements& requirements) {
  std::string errors;
  const TransformsSpec& transforms = spec.data.transforms;
  for (const std::vector<Variant>* list : {&transforms.train, &transforms.eval}) {
    collect_errors(errors, [&] {
      try {
        with_host_transforms(sets.train, *list, requirements.input,
                             static_cast<std::uint64_t>(spec.seed));
      } catch (const SizesDiffer& error) {
        const std::string sizes = sizes_in(*sets.train);
        fail(ErrorKind::usage, "{}{}", error.what(),
             sizes.empty() ? std::string()
                           : fmt::format(" (sizes of some training pictures: {})", sizes));
      }
    });
  }
  if (!errors.empty()) throw Error(ErrorKind::usage, errors);
}

/// Returns a line for each sample of those that are tried that cannot be read.
std::string problems_of_samples(const DataSets& sets) {
  std::string problems;
  for (const DataSource* source : {sets.train.get(), sets.val.get(), sets.test.get()}) {
    try {
      try_samples(source);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      problems += (problems.empty() ? "" : "\n") + std::string(error.what());
    }
  }
  return problems;
}

/// Opens the data set. If files of it are refused, the error also names those of the other files
/// that cannot be read.
DataSets open_or_list_problems(const TrainSpec& spec, DataRequirements requirements) {
  std::string problems;
  try {
    return open_dataset(spec.data.dataset, requirements);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    problems = error.what();
  }
  requirements.leaves_out_files = true;
  try {
    const std::string more = problems_of_samples(open_dataset(spec.data.dataset, requirements));
    if (!more.empty()) problems += "\n" + more;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
  }
  throw Error(ErrorKind::data, problems);
}

/// Of a data set whose files are read one by one while it trains: lists all and reads some, and
/// says what was found, and which classes the data has. Its images have the model's shape. Other
/// formats are read whole when they are opened: that is left to `dpt train --dry-run`, so that a
/// config can be checked quickly.
std::string check_listed_data(const TrainSpec& spec, const Plan& plan,
                              std::optional<std::vector<std::string>>& classes) {
  if (!dataset_kind(spec.data.dataset).lists_only) return {};
  const DataRequirements requirements = data_requirements(spec, plan);
  const DataSets sets = open_or_list_problems(spec, requirements);
  classes = sets.train->classes();
  say_notes(sets);
  check_sizes(spec, sets, requirements);
  check_sampler(spec.data.sampler, *sets.train);
  const Splits splits =
      make_splits(sets, spec.data.val_split, static_cast<std::uint64_t>(spec.seed));
  TrainSpec adopted = spec;
  adopt_targets(adopted, *sets.train);
  make_objective(adopted, plan.classes, splits);
  const std::string problems = problems_of_samples(sets);
  if (!problems.empty()) throw Error(ErrorKind::data, problems);
  std::size_t tried = 0;
  std::string counts = fmt::format("{} training samples", sets.train->size());
  for (const DataSource* source : {sets.train.get(), sets.val.get(), sets.test.get()}) {
    if (source) tried += source->samples_to_try().size();
  }
  if (sets.val) counts += fmt::format(", {} validation samples", sets.val->size());
  if (sets.test) counts += fmt::format(", {} test samples", sets.test->size());
  if (tried > 0) counts += fmt::format(" ({} files read, from every class)", tried);
  return "; " + counts;
}

/// Checks that the file of `weights` fits the model and, where rows are taken by the names of
/// classes, the data; returns what was loaded. Only for the latter, data that is not listed is
/// opened here.
std::string check_weights(const TrainSpec& spec, const Plan& plan,
                          std::optional<std::vector<std::string>> classes) {
  if (!spec.weights) return {};
  if (!classes && spec.weights->head == HeadRows::by_class_name) {
    classes = open_dataset(spec.data.dataset, data_requirements(spec, plan)).train->classes();
  }
  std::vector<float> params(static_cast<std::size_t>(plan.param_floats));
  const StartWeights weights = start_weights({}, spec).value();
  return "; " + hide_secrets(
                    apply_start_weights(weights, plan, classes ? &*classes : nullptr, params.data())
                        .lines.front());
}

constexpr const char* kStarter =
    R"(# A small convolutional network for 8x8 handwritten digits. `dpt config reference` describes every
# field; `dpt config check` reports all errors of a file at once.
version: 1
name: my-first-run
seed: 1
data:
  dataset: digits               # needs no files; others: mnist, fashion_mnist, cifar10, image_folder
  val_split: 137                # held out of the training files
  batch_size: 32                # of all replicas together
  transforms:
    train: [{type: Normalize, mean: [0.305], std: [0.375]}]
    eval: [{type: Normalize, mean: [0.305], std: [0.375]}]
model:
  input: [1, 8, 8]              # channels, height, width
  layers:
    - {type: Conv2d, name: conv1, out_channels: 16, kernel_size: 3, padding: 1}
    - {type: ReLU}
    - {type: MaxPool2d, kernel_size: 2}
    - {type: Conv2d, name: conv2, out_channels: 32, kernel_size: 3, padding: 1}
    - {type: ReLU}
    - {type: MaxPool2d, kernel_size: 2}
    - {type: Flatten}
    - {type: Linear, name: fc1, out_features: 64}
    - {type: ReLU}
    - {type: Linear, name: fc2, out_features: 10}
optimizer: {type: SGD, lr: 0.05, momentum: 0.9}
lr_schedule: {type: cosine, warmup: {epochs: 1}}
train: {epochs: 20}
devices: auto
)";

}  // namespace

int run_config_check(const ConfigOptions& options) {
  const TrainSpec spec = load_spec(catalog(), options.config, options.overrides);
  refuse_random_evaluation(spec);
  const Plan plan = check_without_data(spec);
  std::optional<std::vector<std::string>> classes;
  const std::string data = check_listed_data(spec, plan, classes);
  const std::string weights = check_weights(spec, plan, std::move(classes));
  // The number of steps per epoch is unknown here; of the replicas only those that are listed are
  // known.
  for (const std::string& text : misfits_of({spec, plan, spec.devices.size(), {}, {}, false})) {
    say("warning: " + text);
  }
  fmt::print("{}: ok: {} layers, {} parameters{}{}\n", options.config, spec.model.layers.size(),
             plan.param_count, weights, data);
  return 0;
}

int run_config_show(const ConfigOptions& options) {
  TrainSpec spec = load_spec(catalog(), options.config, options.overrides);
  // What is monitored depends on the targets, which only the data may know.
  if (dataset_kind(spec.data.dataset).any_targets) {
    const DataRequirements needs = data_requirements(spec, make_plan(spec));
    adopt_targets(spec, *open_dataset(spec.data.dataset, needs).train);
  }
  if (options.expand) spec = with_explicit_layers(spec);
  fmt::print("{}", show_spec(catalog(), spec, options.origins));
  return 0;
}

int run_config_schema() {
  fmt::print("{}\n", config_schema(catalog()));
  return 0;
}

int run_config_reference() {
  fmt::print("{}", config_reference(catalog()));
  return 0;
}

int run_config_init() {
  fmt::print("{}", kStarter);
  return 0;
}

}  // namespace dpt
