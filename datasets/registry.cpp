// The registry of data sets, and the code that opens one.
#include <filesystem>

#include "datasets/class_table.h"
#include "datasets/dataset.h"
#include "datasets/kinds.h"
#include "datasets/unlabelled.h"
#include "engine/config/stored_paths.h"
#include "engine/data/data_sets.h"
#include "kernels/base/error.h"

namespace dpt {

const Registry<DatasetKind>& dataset_kinds() {
  static const Registry<DatasetKind> registry("data set", all_datasets(),
                                              // Names of torchvision, Keras and scikit-learn.
                                              {{"MNIST", "mnist"},
                                               {"EMNIST", "idx"},
                                               {"KMNIST", "idx"},
                                               {"QMNIST", "idx"},
                                               {"FashionMNIST", "fashion_mnist"},
                                               {"CIFAR10", "cifar10"},
                                               {"CIFAR100", "cifar100"},
                                               {"ImageFolder", "image_folder"},
                                               {"ImageNet", "image_folder"},
                                               {"image_dataset_from_directory", "image_folder"},
                                               {"numpy", "npy"},
                                               {"pandas", "csv"},
                                               {"table", "csv"},
                                               {"FakeData", "synthetic"},
                                               {"random", "synthetic"},
                                               {"wds", "webdataset"},
                                               {"tar", "webdataset"},
                                               {"load_digits", "digits"},
                                               {"optdigits", "digits"}},
                                              "dataset");
  return registry;
}

std::optional<DataFacts> data_facts(const std::string& dataset) {
  const DatasetKind* kind = dataset_kinds().find(dataset);
  return kind ? kind->facts : std::nullopt;
}

std::optional<bool> declares_validation(const Variant& options) {
  const DatasetKind* kind = dataset_kinds().find(options.type);
  return kind && kind->declares ? kind->declares(options).validation : false;
}

std::optional<std::int64_t> data_outputs(const Variant& options) {
  const DatasetKind& kind = dataset_kind(options);
  if (kind.facts) return kind.facts->classes;
  if (!kind.outputs) return std::nullopt;
  try {
    return kind.outputs(options);
  } catch (const std::filesystem::filesystem_error& error) {
    fail(ErrorKind::data, "{}: {}", options.type, error.what());
  }
}

const DatasetKind& dataset_kind(const Variant& options) {
  if (const DatasetKind* kind = dataset_kinds().find(options.type)) return *kind;
  fail(ErrorKind::usage, "{}: data.dataset: '{}' is not a built-in data set", options.where.text(),
       options.type);
}

namespace {

/// Returns true for the files of a part that is not opened (DataRequirements::only).
bool is_of_other_part(const std::string& field, const DataRequirements& requirements) {
  return (field == "train" && !requirements.wants(DataPart::train)) ||
         (field == "val" && !requirements.wants(DataPart::val)) ||
         (field == "test" && !requirements.wants(DataPart::test));
}

/// Throws for a path with a variable that is not set, as a config stored in a checkpoint may have.
void check_paths(const std::vector<Field>& fields, const void* object, const std::string& owner,
                 const DataRequirements& requirements) {
  for (const Field& field : fields) {
    if (is_of_other_part(field.name, requirements)) continue;
    const std::string name = owner + "." + field.name;
    if (field.type == FieldType::object) {
      const void* nested = field.nested_const(object);
      if (nested) check_paths(field.object->fields, nested, name, requirements);
    }
    if (field.type != FieldType::path) continue;
    const PlainValue value = field.get(object);
    const auto* path = std::get_if<std::string>(&value);
    const std::string problem = path ? problem_of_stored_path(*path) : std::string();
    if (!problem.empty()) fail(ErrorKind::usage, "{}: {}", name, problem);
  }
}

/// Removes all parts but `part`: data sets without files open all of them. Checks the type of the
/// samples.
void keep_part(DataSets& sets, DataPart part, const DataRequirements& requirements) {
  if (part != DataPart::train) sets.train = nullptr;
  if (part != DataPart::test) sets.test = nullptr;
  if (part != DataPart::val) sets.val = nullptr;
  for (const auto& source : {sets.train, sets.test, sets.val}) {
    if (!source || !requirements.type || source->type() == *requirements.type) continue;
    fail(ErrorKind::data,
         "{}: expected samples of the run's type ({}), found {}: u8 is scaled to 0 to 1, fp32 is "
         "used unchanged",
         source->describe(0), name_of(*requirements.type), name_of(source->type()));
  }
}

}  // namespace

DataSets open_dataset(const Variant& options, const DataRequirements& requirements) {
  const DatasetKind& kind = dataset_kind(options);
  check_paths(options.table->fields, options.options.get(), "data", requirements);
  try {
    DataSets sets = kind.open(options, requirements);
    if (requirements.only) keep_part(sets, *requirements.only, requirements);
    check_class_tables(sets, requirements.known_classes);
    if (!requirements.group.empty() && sets.train && sets.train->groups().empty()) {
      fail(ErrorKind::usage,
           "data.val_split.group: {}: expected data with columns (csv), but the samples of {} have "
           "none: leave group out, or list the files in a CSV file with path, label and {}",
           requirements.group, options.type, requirements.group);
    }
    return sets;
  } catch (const std::filesystem::filesystem_error& error) {
    fail(ErrorKind::data, "{}: {}", options.type, error.what());
  }
}

std::shared_ptr<const DataSource> open_unlabelled(const Variant& options, DataPart part,
                                                  const DataRequirements& requirements,
                                                  const ModelOutputs& outputs,
                                                  std::shared_ptr<UnreadableSamples> unreadable) {
  const DatasetKind& kind = dataset_kind(options);
  if (part == DataPart::val && !declares_validation(options).value_or(true)) return nullptr;
  try {
    const auto source = kind.open_unlabelled(options, part, requirements, *unreadable);
    if (!source) return nullptr;
    if (requirements.type && source->type() != *requirements.type) {
      fail(ErrorKind::data,
           "{}: expected samples of the run's type ({}), found {}: u8 is scaled to 0 to 1, fp32 is "
           "used unchanged",
           source->describe(0), name_of(*requirements.type), name_of(source->type()));
    }
    return without_labels(source, outputs, std::move(unreadable));
  } catch (const std::filesystem::filesystem_error& error) {
    fail(ErrorKind::data, "{}: {}", options.type, error.what());
  }
}

}  // namespace dpt
