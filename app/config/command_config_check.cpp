// dpt config check: reports all errors of a config that can be found without training, in one run.
#include "app/config/command_config_check.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "app/base/catalog.h"
#include "app/base/command_support.h"
#include "app/base/console.h"
#include "app/train/misfits.h"
#include "app/train/start_weights.h"
#include "app/train/train_prometheus.h"
#include "datasets/dataset.h"
#include "engine/config/issue.h"
#include "engine/config/read_spec.h"
#include "engine/config/secrets.h"
#include "engine/data/data_sets.h"
#include "engine/data/host_pipeline.h"
#include "engine/data/split.h"
#include "engine/data/splits.h"
#include "engine/data/transforms.h"
#include "engine/graph/make_plan.h"
#include "engine/graph/plan.h"
#include "engine/job/objective.h"
#include "engine/losses/loss.h"
#include "engine/metrics/metric.h"
#include "engine/optimizers/optimizer.h"
#include "engine/schedules/schedule.h"
#include "kernels/base/text.h"
#include "kernels/image/resize.h"

namespace dpt {
namespace {

/// Returns the sizes of some readable images, for messages: "8x8 and 6x9".
std::string sizes_in(const DataSource& source) {
  constexpr std::size_t kMaxRead = 64, kMaxNamed = 4;
  std::vector<std::string> sizes;
  std::size_t read = 0;
  for (const std::int64_t index : source.samples_to_try()) {
    if (++read > kMaxRead || sizes.size() == kMaxNamed) break;
    std::string size;
    std::int32_t label = 0;
    const ChoosePart note_size = [&](std::int64_t height, std::int64_t width) {
      size = fmt::format("{}x{}", height, width);
      return whole_image(height, width, 1, 1);
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

/// Opens the data set. If some of its files are refused, the error also lists other unreadable
/// files.
DataSets open_or_list_problems(const TrainSpec& spec, DataRequirements requirements) {
  std::string problems;
  try {
    return open_dataset(spec.data.dataset, requirements);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    problems = error.what();
  }
  if (!dataset_kind(spec.data.dataset).lists_only) throw Error(ErrorKind::data, problems);
  requirements.leaves_out_files = true;
  try {
    const DataSets sets = open_dataset(spec.data.dataset, requirements);
    for (const DataSource* source : {sets.train.get(), sets.val.get(), sets.test.get()}) {
      for (const std::string& line : problems_of_samples(source)) problems += "\n" + line;
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
  }
  throw Error(ErrorKind::data, problems);
}

/// Returns the targets for which metrics are checked before the data is opened.
TargetKind assumed_targets(const Variant& dataset) {
  const DatasetKind& kind = dataset_kind(dataset);
  const bool is_hot = kind.declares && kind.declares(dataset).targets == TargetKind::multi_hot;
  return is_hot ? TargetKind::multi_hot : TargetKind::class_index;
}

/// Returns the number of outputs that the last layer's options state, or 0 if unknown. Used for a
/// network with invalid shapes, which has no plan.
std::int64_t written_outputs(const ModelSpec& model) {
  for (auto layer = model.layers.rbegin(); layer != model.layers.rend(); ++layer) {
    const ObjectTable* table = layer->op.table;
    if (!table) return 0;
    for (const Field& field : table->fields) {
      if (field.name != "out_features") continue;
      return std::get<std::int64_t>(field.get(layer->op.options.get()));
    }
    if (!table->is_activation) return 0;
  }
  return 0;
}

/// Reports the errors of all stages: first the fields, then the network and its training, then the
/// data. Skips and lists the stages that depend on an invalid field.
class ConfigCheck {
 public:
  explicit ConfigCheck(const ConfigOptions& options)
      : options_(options),
        read_(read_spec(catalog(), options.config, options.overrides)),
        spec_(read_.spec) {
    for (const ConfigIssue& issue : read_.issues) has_usage_ = has_usage_ || !issue.is_of_data;
    if (!read_.issues.empty()) errors_ = text_of(read_.issues);
  }

  int run() {
    check_network();
    check_transform_lists();
    check_update();
    check_objective();
    check_data();
    check_starting_weights();
    if (are_good({"log.prometheus"})) collect([&] { check_prometheus(spec_); });
    warn();
    if (errors_.empty()) {
      fmt::print("{}: ok: {}, {}{}\n", options_.config, counted(spec_.model.layers.size(), "layer"),
                 counted(plan_.param_count, "parameter"), found_weights_ + found_data_);
      return 0;
    }
    if (!left_out_.empty()) {
      errors_ +=
          fmt::format("\nnot checked because of the errors above: {}", fmt::join(left_out_, ", "));
    }
    throw Error(has_usage_ ? ErrorKind::usage : ErrorKind::data, errors_);
  }

 private:
  /// Returns false if a field below one of `paths` is invalid.
  bool are_good(std::initializer_list<const char*> paths) const {
    return std::none_of(paths.begin(), paths.end(), [&](const char* path) {
      return std::any_of(read_.issues.begin(), read_.issues.end(),
                         [&](const ConfigIssue& issue) { return concerns(issue, path); });
    });
  }

  /// Calls `check` and appends its error to the others. Returns false for an error.
  template <class Check>
  bool collect(Check check) {
    try {
      check();
      return true;
    } catch (const Error& error) {
      const bool is_usage = error.kind() == ErrorKind::usage;
      if (!is_usage && error.kind() != ErrorKind::data) throw;
      // data.normalize adds the same Normalize to both lists: report its error once.
      if (errors_.find(error.what()) != std::string::npos) return false;
      has_usage_ = has_usage_ || is_usage;
      errors_ += (errors_.empty() ? "" : "\n") + std::string(error.what());
      return false;
    }
  }

  bool has_model() const { return are_good({"model"}) && !spec_.model.layers.empty(); }
  bool has_plan() const { return plan_.classes > 0; }

  void check_network() {
    if (!has_model()) return left_out_.emplace_back("the network"), void();
    collect([&] { plan_ = make_plan(spec_); });
  }

  /// Checks the transforms on images of the model's input shape, because the data set's shape is
  /// not known here. Accepts every list that fits some data set.
  void check_transform_lists() {
    if (!are_good({"data.transforms", "data.normalize", "model.input"}) ||
        spec_.model.input.size() != 3) {
      return left_out_.emplace_back("the transforms"), void();
    }
    const std::vector<std::int64_t>& input = spec_.model.input;
    const SampleShape shape{input[1], input[2], input[0]};
    const TransformsSpec& transforms = spec_.data.transforms;
    bool is_good = true;
    for (const std::vector<Variant>* list : {&transforms.train, &transforms.eval}) {
      is_good = collect([&] { check_transforms(*list, shape); }) && is_good;
    }
    is_good = collect([&] { check_evaluation_transforms(transforms); }) && is_good;
    if (spec_.data.dataset.table) {
      is_good = collect([&] { refuse_random_evaluation(spec_); }) && is_good;
    }
    has_transforms_ = is_good;
  }

  void check_update() {
    if (!are_good({"optimizer"}) || !spec_.optimizer.table) {
      return left_out_.emplace_back("the optimizer"), void();
    }
    const bool is_good = collect([&] {
      if (plan_.params.empty()) {
        make_optimizer(spec_.optimizer);
      } else {
        plan_update(make_optimizer(spec_.optimizer), param_places(plan_));
      }
    });
    if (!is_good || !has_schedule()) return left_out_.emplace_back("the schedule"), void();
    collect([&] { make_lr_schedule(spec_, make_optimizer(spec_.optimizer).lr, 1); });
  }

  bool has_schedule() const {
    return are_good({"lr_schedule", "train.epochs"}) && spec_.lr_schedule.table;
  }

  void check_objective() {
    const bool is_known = are_good({"loss", "metrics"}) && spec_.loss.table;
    if (!has_plan() || !is_known || !spec_.data.dataset.table) {
      return left_out_.emplace_back("loss and metrics"), void();
    }
    has_objective_ = collect([&] {
      check_outputs(spec_, plan_.classes);
      // The class sizes are not known here: assume equal ones.
      const auto equal = [&] {
        return std::vector<std::int64_t>(static_cast<std::size_t>(plan_.classes), 1);
      };
      const LossContext context{plan_.classes, {}, equal};
      const Loss loss = make_loss(spec_.loss, context);
      make_mixed_loss(spec_, context, loss);
      make_metrics(spec_.metrics, {plan_.classes, spec_.loss.type, loss.has_errors,
                                   assumed_targets(spec_.data.dataset)});
    });
  }

  /// Checks that the file of `weights` fits the model and, if rows are matched by class name, the
  /// data.
  void check_starting_weights() {
    if (!spec_.weights) return;
    if (!are_good({"weights"}) || !has_plan()) return left_out_.emplace_back("weights"), void();
    collect([&] {
      std::vector<float> params(static_cast<std::size_t>(plan_.param_floats));
      const StartWeights weights = start_weights({}, spec_).value();
      const AppliedWeights applied =
          apply_start_weights(weights, plan_, classes_ ? &*classes_ : nullptr, params.data());
      found_weights_ = "; " + hide_secrets(applied.lines.front());
    });
  }

  /// Returns false if a field of the data set itself is invalid.
  bool has_dataset() const {
    const ObjectTable* table = spec_.data.dataset.table;
    if (!table || spec_.model.input.size() != 3 || !are_good({"model.input"})) return false;
    const auto& fields = table->fields;
    return std::all_of(
               fields.begin(), fields.end(),
               [&](const Field& field) { return are_good({("data." + field.name).c_str()}); }) &&
           are_good({"data.dataset", "data.val_split", "data.on_bad_sample", "data.sampler"});
  }

  void check_data() {
    if (!has_dataset()) return left_out_.emplace_back("the data"), void();
    if (spec_.data.dataset.type == "synthetic") {
      found_data_ = "; data not checked: synthetic";
      return;
    }
    collect([&] { open_and_check(); });
  }

  void open_and_check() {
    Plan plan = plan_;
    if (!has_plan()) plan.classes = has_model() ? written_outputs(spec_.model) : 0;
    const DataRequirements requirements = data_requirements(spec_, plan);
    const DataSets sets = open_or_list_problems(spec_, requirements);
    classes_ = sets.train->classes();
    say_notes(sets);
    if (has_transforms_) check_sizes(sets, requirements);
    check_sampler(spec_.data.sampler, *sets.train);
    const Splits splits =
        make_splits(sets, spec_.data.val_split, static_cast<std::uint64_t>(spec_.seed));
    collect([&] { check_can_skip(spec_.data, *sets.train); });
    collect([&] { check_monitored(spec_, splits.val.size()); });
    if (has_objective_) {
      TrainSpec adopted = spec_;
      adopt_targets(adopted, *sets.train);
      make_objective(adopted, plan_.classes, splits);
    }
    try_samples({sets.train.get(), sets.val.get(), sets.test.get()}, spec_.data.on_bad_sample);
    note_counts(sets);
  }

  /// Reports transforms that training would refuse because the images have different sizes.
  void check_sizes(const DataSets& sets, const DataRequirements& requirements) {
    const TransformsSpec& transforms = spec_.data.transforms;
    for (const std::vector<Variant>* list : {&transforms.train, &transforms.eval}) {
      collect([&] {
        try {
          with_host_transforms(sets.train, *list, requirements.input,
                               static_cast<std::uint64_t>(spec_.seed));
        } catch (const SizesDiffer& error) {
          const std::string sizes = sizes_in(*sets.train);
          fail(ErrorKind::usage, "{}{}", error.what(),
               sizes.empty() ? std::string()
                             : fmt::format(" (sizes of some training images: {})", sizes));
        }
      });
    }
  }

  void note_counts(const DataSets& sets) {
    std::size_t tried = 0;
    std::string counts = counted(sets.train->size(), "training sample");
    for (const DataSource* source : {sets.train.get(), sets.val.get(), sets.test.get()}) {
      if (source) tried += source->samples_to_try().size();
    }
    if (sets.val) counts += ", " + counted(sets.val->size(), "validation sample");
    if (sets.test) counts += ", " + counted(sets.test->size(), "test sample");
    if (tried > 0) counts += fmt::format(" ({} read, from every class)", counted(tried, "file"));
    if (spec_.data.val_split.holds_out()) {
      counts += "; data.val_split holds out some of the training samples";
    }
    found_data_ = "; " + counts;
  }

  /// Prints warnings. The number of steps per epoch is unknown here. The number of replicas is
  /// known only if the config lists their devices.
  void warn() {
    if (!has_schedule() || !are_good({"data.transforms", "data.normalize"}) ||
        !spec_.data.dataset.table)
      return;
    for (const std::string& text :
         misfits_of({spec_, plan_, spec_.devices.size(), {}, {}, false})) {
      say("warning: " + text);
    }
  }

  const ConfigOptions& options_;
  ReadResult read_;
  const TrainSpec& spec_;
  Plan plan_;
  std::string errors_, found_data_, found_weights_;
  std::optional<std::vector<std::string>> classes_;  ///< classes of the data, if it was opened
  std::vector<std::string> left_out_;
  bool has_usage_ = false, has_transforms_ = false, has_objective_ = false;
};

}  // namespace

int run_config_check(const ConfigOptions& options) {
  return ConfigCheck(options).run();
}

}  // namespace dpt
