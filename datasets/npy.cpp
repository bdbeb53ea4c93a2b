// Data sets of NumPy arrays in .npy and .npz files: images or features, their targets (class
// labels, probabilities or numbers), and the weights of the samples.
#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>

#include "datasets/class_table.h"
#include "datasets/dataset.h"
#include "datasets/fingerprint.h"
#include "datasets/kinds.h"
#include "datasets/npy_array.h"
#include "datasets/requirements.h"
#include "datasets/shared_files.h"
#include "datasets/split_files.h"
#include "engine/data/data_sets.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace dpt {
namespace {

/// Meaning of the numbers in `targets`.
enum class NpyTarget : std::uint8_t { from_array, labels, soft_labels, multi_hot, values };
constexpr auto enum_names(NpyTarget) {
  return std::to_array<EnumName<NpyTarget>>({{NpyTarget::from_array, "auto"},
                                             {NpyTarget::labels, "labels"},
                                             {NpyTarget::soft_labels, "soft_labels"},
                                             {NpyTarget::multi_hot, "multi_hot"},
                                             {NpyTarget::values, "values"}});
}

/// Files of one part of the data set.
struct NpyFiles {
  std::string images, targets, weights;
};

struct NpyOptions {
  NpyFiles train;
  std::optional<NpyFiles> test, val;
  NpyTarget target = NpyTarget::from_array;
  std::vector<std::string> classes;
};

/// The targets of all samples.
struct Targets {
  std::vector<std::int32_t> labels;
  std::vector<float> rows;
  TargetShape shape;
};

class NpySource final : public DataSource {
 public:
  NpySource(NpyArray images, SampleShape shape, Targets targets, std::vector<std::string> classes)
      : images_(std::move(images)),
        shape_(shape),
        targets_(std::move(targets)),
        classes_(std::move(classes)) {}

  std::int64_t size() const override { return images_.shape()[0]; }
  SampleShape shape() const override { return shape_; }
  DType type() const override {
    return images_.kind() == NpyArray::Kind::floating ? DType::f32 : DType::u8;
  }
  const std::vector<std::string>& classes() const override { return classes_; }
  TargetShape targets() const override { return targets_.shape; }

  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    const auto i = static_cast<std::size_t>(index);
    assert(0 <= index && index < size());
    std::memcpy(pixels.data(), images_.elements().data() + i * pixels.size(), pixels.size());
    label = targets_.labels[i];
  }
  std::optional<ResidentSamples> resident() const override {
    return ResidentSamples{images_.elements(), targets_.labels, targets_.rows};
  }
  std::string describe(std::int64_t index) const override {
    return fmt::format("{}, sample {}", images_.path(), index);
  }
  std::string fingerprint() const override {
    // Computed on demand, because it reads the whole file.
    std::call_once(hashed_, [this] {
      Fingerprint hash;
      hash.add(fmt::format("npy v1 {} {} {} {} {} {} {}", name_of(type()), shape_.h, shape_.w,
                           shape_.c, static_cast<int>(targets_.shape.kind), targets_.shape.values,
                           targets_.shape.weighted));
      const auto elements = images_.elements();
      hash.add(elements.data(), elements.size());
      hash.add(targets_.labels.data(), targets_.labels.size() * sizeof(std::int32_t));
      hash.add(targets_.rows.data(), targets_.rows.size() * sizeof(float));
      fingerprint_ = hash.text();
    });
    return fingerprint_;
  }

 private:
  NpyArray images_;
  SampleShape shape_;
  Targets targets_;
  std::vector<std::string> classes_;
  mutable std::once_flag hashed_;
  mutable std::string fingerprint_;
};

// ---- Images ------------------------------------------------------------------------------------

SampleShape sample_shape(const NpyArray& images, const DataRequirements& requirements) {
  const std::vector<std::int64_t>& dims = images.shape();
  const bool is_pixels = images.kind() == NpyArray::Kind::natural && images.item_bytes() == 1;
  const bool is_floats = images.kind() == NpyArray::Kind::floating && images.item_bytes() == 4;
  if ((!is_pixels && !is_floats) || dims.size() < 2 || dims.size() > 4) {
    fail(ErrorKind::data,
         "{}: expected images (N, H, W, C) or (N, H, W), or features (N, F), of uint8 (scaled to 0 "
         "to 1) or float32; found {} (convert them with array.astype and array.reshape)",
         images.path(), images.text());
  }
  if (dims[0] < 1 || dims[0] > std::numeric_limits<std::int32_t>::max()) {
    fail(ErrorKind::data, "{}: expected 1 to {} samples, found {}", images.path(),
         std::numeric_limits<std::int32_t>::max(), dims[0]);
  }
  if (std::find(dims.begin() + 1, dims.end(), 0) != dims.end()) {
    fail(ErrorKind::data, "{}: expected samples with at least one value each, found {}",
         images.path(), images.text());
  }
  SampleShape shape{1, 1, dims[1]};
  if (dims.size() > 2) shape = {dims[1], dims[2], dims.size() == 4 ? dims[3] : 1};
  const SampleShape& input = requirements.input;
  if (dims.size() == 4 && shape != input && SampleShape{dims[2], dims[3], dims[1]} == input) {
    fail(ErrorKind::data,
         "{}: expected images (N, H, W, C), found {}, which are (N, C, H, W) for model.input: "
         "numpy.save(file, numpy.ascontiguousarray(array.transpose(0, 2, 3, 1))) converts them",
         images.path(), images.text());
  }
  check_shape(images.path(), shape, requirements);
  return shape;
}

// ---- Targets -----------------------------------------------------------------------------------

std::string sample_of(const NpyArray& array, std::size_t sample) {
  return fmt::format("{}, sample {}", array.path(), sample);
}

/// Returns the kind of targets that the option names; nothing if it follows from the array.
std::optional<TargetKind> named_target_kind(NpyTarget target) {
  switch (target) {
    case NpyTarget::labels:
      return TargetKind::class_index;
    case NpyTarget::soft_labels:
      return TargetKind::soft_labels;
    case NpyTarget::multi_hot:
      return TargetKind::multi_hot;
    case NpyTarget::values:
      return TargetKind::values;
    case NpyTarget::from_array:
      break;
  }
  return std::nullopt;
}

TargetKind target_kind(const NpyArray& array, NpyTarget target) {
  using Kind = NpyArray::Kind;
  const std::size_t dims = array.shape().size();
  const bool is_one = dims == 1 || (dims == 2 && array.shape()[1] == 1);
  if (const auto named = named_target_kind(target)) return *named;
  if (array.is_integral() && dims == 1) return TargetKind::class_index;
  if (array.kind() == Kind::floating && is_one) return TargetKind::values;
  fail(ErrorKind::data, "{}: {} can be {}: say which in data.target", array.path(), array.text(),
       dims == 1 ? "labels or multi_hot" : "soft_labels, multi_hot or values");
}

void check_count(const NpyArray& array, const char* what, const NpyArray& images) {
  const std::int64_t found = array.shape().empty() ? 0 : array.shape()[0];
  if (found == images.shape()[0]) return;
  fail(ErrorKind::data, "{}: expected the {} of the {} samples of {}, found {}", array.path(), what,
       images.shape()[0], images.path(), array.text());
}

void read_labels(const NpyArray& array, ClassTable& classes, Targets& targets) {
  if (array.shape().size() != 1 || array.kind() == NpyArray::Kind::floating) {
    fail(ErrorKind::data, "{}: expected labels (N,) of an integer type, found {}", array.path(),
         array.text());
  }
  for (std::size_t i = 0; i < targets.labels.size(); ++i) {
    targets.labels[i] =
        classes.label_of_number(array.integer(i), [&] { return sample_of(array, i); });
  }
}

/// Throws for a row whose values are not valid for its kind of target.
void check_row(const NpyArray& array, std::size_t sample, std::span<const float> row,
               TargetKind kind) {
  double sum = 0;
  for (std::size_t c = 0; c < row.size(); ++c) {
    const float value = row[c];
    sum += static_cast<double>(value);
    const bool is_negative = kind != TargetKind::values && value < 0;
    const bool is_above = kind == TargetKind::multi_hot && value > 1;
    if (std::isfinite(value) && !is_negative && !is_above) continue;
    fail(ErrorKind::data, "{}, value {}: expected {}, found {:g}", sample_of(array, sample), c,
         kind == TargetKind::multi_hot     ? "a target from 0 to 1"
         : kind == TargetKind::soft_labels ? "a probability"
                                           : "a finite number",
         array.number(sample * row.size() + c));
  }
  constexpr double kTolerance = 1e-3;
  if (kind != TargetKind::soft_labels || std::abs(sum - 1) <= kTolerance) return;
  fail(ErrorKind::data,
       "{}: expected probabilities that add up to 1 (within {:g}), found a sum of {:g}",
       sample_of(array, sample), kTolerance, sum);
}

void read_rows(const NpyArray& array, const std::vector<std::string>& classes,
               const DataRequirements& requirements, Targets& targets) {
  const std::size_t dims = array.shape().size(), n = targets.labels.size();
  const bool soft = targets.shape.kind == TargetKind::soft_labels;
  if (dims > 2 || (soft && dims != 2) || (dims == 2 && array.shape()[1] < 1)) {
    fail(ErrorKind::data, "{}: expected targets (N, K){}, found {}", array.path(),
         soft ? "" : " or (N,)", array.text());
  }
  const std::int64_t width = dims == 2 ? array.shape()[1] : 1;
  if (requirements.classes > 0 && width != requirements.classes) {
    fail(ErrorKind::data,
         "{}: the samples have {} target value{}, but the model's last layer has {}: give it {}",
         array.path(), width, width == 1 ? "" : "s", counted(requirements.classes, "output"),
         width);
  }
  if (!classes.empty() && static_cast<std::int64_t>(classes.size()) != width) {
    fail(ErrorKind::data, "{}: the samples have {} target value{}, but data.classes has {}",
         array.path(), width, width == 1 ? "" : "s", counted(classes.size(), "name"));
  }
  targets.shape.values = width;
  const auto values = static_cast<std::size_t>(width);
  const auto stride = static_cast<std::size_t>(targets.shape.floats());
  targets.rows.resize(n * stride);
  for (std::size_t i = 0; i < n; ++i) {
    const std::span<float> row = std::span(targets.rows).subspan(i * stride, values);
    for (std::size_t c = 0; c < values; ++c) {
      row[c] = static_cast<float>(array.number(i * values + c));
    }
    check_row(array, i, row, targets.shape.kind);
    if (!soft) continue;
    targets.labels[i] =
        static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
  }
}

constexpr double kMinWeight = 1e-12;

void read_weights(const NpyArray& array, const NpyArray& images, Targets& targets) {
  check_count(array, "weights", images);
  if (array.shape().size() != 1 || array.kind() != NpyArray::Kind::floating) {
    fail(ErrorKind::data, "{}: expected weights (N,) of float32 or float64, found {}", array.path(),
         array.text());
  }
  const auto stride = static_cast<std::size_t>(targets.shape.floats());
  bool any = false;
  for (std::size_t i = 0; i < targets.labels.size(); ++i) {
    const auto weight = static_cast<float>(array.number(i));
    // Sums of the gradients times the weights must stay within the normal range of fp32.
    const double found = array.number(i);
    if (found != 0 && !(found >= kMinWeight && found <= 1 / kMinWeight)) {
      fail(ErrorKind::data,
           "{}: expected a weight of 0, or from {:g} to {:g}, found {:g} (multiplying all weights "
           "by one number does not change the loss)",
           sample_of(array, i), kMinWeight, 1 / kMinWeight, found);
    }
    any = any || weight > 0;
    targets.rows[(i + 1) * stride - 1] = weight;
  }
  if (!any)
    fail(ErrorKind::data, "{}: expected at least one weight above 0, found none", array.path());
}

// ---- The data set ------------------------------------------------------------------------------

std::shared_ptr<const NpySource> open_files(const NpyFiles& files, const NpyOptions& options,
                                            bool is_training, bool weighted,
                                            std::optional<ClassTable>& table,
                                            const DataRequirements& requirements) {
  NpyArray images(files.images);
  const SampleShape shape = sample_shape(images, requirements);
  const NpyArray array(files.targets);
  check_count(array, "targets", images);
  std::vector<std::string> classes = options.classes;
  Targets targets;
  targets.labels.resize(static_cast<std::size_t>(images.shape()[0]));
  targets.shape = {target_kind(array, options.target), 0, weighted};
  if (targets.shape.kind == TargetKind::class_index) {
    targets.rows.resize(weighted ? targets.labels.size() : 0);
    if (!table) table.emplace(options.classes, options.train.targets, requirements);
    read_labels(array, *table, targets);
    if (is_training) table->close(ClassOrder::numbers_first, targets.labels);
    classes = table->names();
  } else {
    read_rows(array, classes, requirements, targets);
    if (classes.empty()) classes = numbered_classes(targets.shape.values);
  }
  if (!files.weights.empty()) {
    read_weights(NpyArray(files.weights), images, targets);
  } else if (weighted) {
    const auto stride = static_cast<std::size_t>(targets.shape.floats());
    for (std::size_t i = stride - 1; i < targets.rows.size(); i += stride) targets.rows[i] = 1;
  }
  return std::make_shared<NpySource>(std::move(images), shape, std::move(targets),
                                     std::move(classes));
}

/// Returns true if any part has weights. Samples of parts without weights then have the weight 1.
bool is_weighted(const NpyOptions& options) {
  const auto has_weights = [](const std::optional<NpyFiles>& files) {
    return files && !files->weights.empty();
  };
  return !options.train.weights.empty() || has_weights(options.test) || has_weights(options.val);
}

DataSets open_npy(const Variant& variant, const DataRequirements& requirements) {
  const auto& options = variant.as<NpyOptions>();
  check_no_shared_files({{"data.train.images", {options.train.images}},
                         {"data.val.images", {options.val ? options.val->images : ""}},
                         {"data.test.images", {options.test ? options.test->images : ""}}});
  const bool weighted = is_weighted(options);
  DataSets sets;
  // Created when the first labels are read; other targets have no classes.
  std::optional<ClassTable> table;
  if (requirements.wants(DataPart::train)) {
    sets.train = open_files(options.train, options, true, weighted, table, requirements);
  }
  const auto open = [&](DataPart part) {
    const NpyFiles* files = files_of(options, part);
    if (!files || !requirements.wants(part)) return std::shared_ptr<const NpySource>();
    auto source = open_files(*files, options, false, weighted, table, requirements);
    if (sets.train && source->type() != sets.train->type()) {
      fail(ErrorKind::data, "{}: expected elements of the same type as {} ({}), found {}",
           files->images, options.train.images, name_of(sets.train->type()),
           name_of(source->type()));
    }
    return source;
  };
  sets.val = open(DataPart::val);
  sets.test = open(DataPart::test);
  return sets;
}

std::shared_ptr<const DataSource> open_npy_unlabelled(const Variant& variant, DataPart part,
                                                      const DataRequirements& requirements,
                                                      UnreadableSamples& /*unreadable*/) {
  const auto& options = variant.as<NpyOptions>();
  const NpyFiles* files = files_of(options, part);
  if (!files) return nullptr;
  NpyArray images(files->images);
  const SampleShape shape = sample_shape(images, requirements);
  Targets none;
  none.labels.resize(static_cast<std::size_t>(images.shape()[0]));
  return std::make_shared<NpySource>(std::move(images), shape, std::move(none),
                                     std::vector<std::string>());
}

/// Returns the number of classes or targets of the training samples.
std::optional<std::int64_t> outputs_of_npy(const NpyOptions& options) {
  const NpyArray array(options.train.targets);
  const std::vector<std::int64_t>& dims = array.shape();
  if (target_kind(array, options.target) != TargetKind::class_index) {
    return dims.size() > 1 ? dims[1] : 1;
  }
  if (!options.classes.empty()) return static_cast<std::int64_t>(options.classes.size());
  ClassTable classes({}, options.train.targets, {});
  Targets targets;
  targets.labels.resize(dims.empty() ? 0 : static_cast<std::size_t>(dims[0]));
  read_labels(array, classes, targets);
  classes.close(ClassOrder::numbers_first, targets.labels);
  return static_cast<std::int64_t>(classes.names().size());
}

const ObjectTable& files_table() {
  static const ObjectTable table = object_table<NpyFiles>(
      "npy files", "The arrays of some samples.",
      {path_field("images", &NpyFiles::images,
                  "Images (N, H, W, C) or (N, H, W), or features (N, F), which a model takes as "
                  "input: [F, 1, 1]; uint8 (scaled to 0 to 1) or float32.")
           .required(),
       path_field("targets", &NpyFiles::targets,
                  "Class labels (N,) of an integer type; or (N, K) or (N,) of any numbers, one for "
                  "each output of the model (see target).")
           .required_of_labels(),
       path_field(
           "weights", &NpyFiles::weights,
           "Weights (N,) of the samples, float32 or float64, 0 or from 1e-12 to 1e12: the loss is "
           "the sum of weight * loss, divided by the sum of the weights. A sample with the weight "
           "0 counts neither in the loss nor in the metrics, but its image and targets must still "
           "be finite. All other samples count equally in the metrics. If only some of train, val "
           "and test have weights, those of the others are 1.")});
  return table;
}

}  // namespace

DatasetKind npy_dataset() {
  static const ObjectTable table = object_table<NpyOptions>(
      "npy",
      "NumPy arrays in .npy files (numpy.save), or in .npz archives (numpy.savez, "
      "numpy.savez_compressed), written as FILE.npz:NAME. Files are mapped into memory and must "
      "not change while they are used.",
      {train_files_field(&NpyOptions::train, files_table()),
       val_files_field(&NpyOptions::val, files_table()),
       test_files_field(&NpyOptions::test, files_table()),
       field("target", &NpyOptions::target,
             "Kind of targets. labels: the number of the class. soft_labels: a probability for "
             "each class; they add up to 1. multi_hot: a number from 0 to 1 for each output, which "
             "says whether it applies. values: a number for each output. auto: labels if they are "
             "integers (N,), values if they are floating-point numbers (N,) or (N, 1); for all "
             "other arrays, the kind must be given."),
       field("classes", &NpyOptions::classes,
             "Names of the classes, or of the outputs; numbers by default.")});
  DatasetKind kind = {&table, open_npy, open_npy_unlabelled, true};
  kind.any_targets = true;
  kind.any_type = true;
  kind.declares = [](const Variant& variant) {
    const auto& options = variant.as<NpyOptions>();
    return DeclaredSamples{false, named_target_kind(options.target), is_weighted(options),
                           std::nullopt, options.val.has_value()};
  };
  kind.outputs = [](const Variant& variant) { return outputs_of_npy(variant.as<NpyOptions>()); };
  return kind;
}

}  // namespace dpt
