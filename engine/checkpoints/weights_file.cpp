#include "engine/checkpoints/weights_file.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>

#include "engine/checkpoints/param_tensors.h"
#include "engine/checkpoints/run_metadata.h"
#include "engine/checkpoints/safetensors.h"
#include "engine/checkpoints/torch_file.h"
#include "engine/checkpoints/weights_advice.h"
#include "engine/config/name_patterns.h"
#include "engine/graph/layouts.h"
#include "engine/layers/param_spec.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace dpt {
namespace {

/// Returns true for the names of dpt's own tensors, which are not weights.
bool is_ours(const std::string& name) {
  return name.starts_with("optim.") || name.starts_with("dpt.");
}

/// Returns the prefix of the names of an average's tensors.
std::string average_prefix(WeightsUse use) {
  return fmt::format("optim.{}.", name_of(use));
}

/// Maps names of tensors in the file to names in the model.
class Renaming {
 public:
  explicit Renaming(const TextPairs& map) {
    for (const auto& [from, to] : map) {
      to_.emplace(from, to);
      longest_ = std::max(longest_, from.size());
    }
  }
  /// Replaces the longest prefix of `name` that the map contains.
  std::string renamed(const std::string& name) const {
    const std::string_view text = name;
    for (std::size_t size = std::min(longest_, text.size()) + 1; size-- > 0;) {
      const auto found = to_.find(text.substr(0, size));
      if (found != to_.end()) return found->second + name.substr(size);
    }
    return name;
  }

 private:
  std::map<std::string, std::string, std::less<>> to_;
  std::size_t longest_ = 0;
};

/// Returns a list of up to ten of the names.
std::string some(const std::vector<std::string>& names) {
  constexpr std::size_t kMax = 10;
  const std::vector<std::string> shown(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMax)));
  return fmt::format("{}{}", fmt::join(shown, ", "), names.size() > kMax ? ", ..." : "");
}

/// Returns the last layer with parameters, or the layer whose parameters it shares; empty if no
/// layer has any.
std::string last_layer(const Plan& plan) {
  std::string last;
  for (const LayerRow& row : plan.rows) {
    if (row.params == 0 && row.shares.empty()) continue;
    last = row.shares.empty() ? row.name : row.shares;
  }
  return last;
}

/// Returns last_layer() if its parameters have a row for each class; otherwise an empty string. A
/// Linear or Conv2d with as many outputs as classes has such rows.
std::string head_of(const Plan& plan) {
  std::string head;
  for (const LayerRow& row : plan.rows) {
    if (row.params == 0 && row.shares.empty()) continue;
    const bool has_rows = row.type == "Linear" || row.type == "Conv2d";
    head.clear();
    if (has_rows && row.out.shape.c == plan.classes) {
      head = row.shares.empty() ? row.name : row.shares;
    }
  }
  return head;
}

/// Opens the file, in either format, and records the chosen dictionary in the report.
std::unique_ptr<const TensorFile> open_weights(const WeightsSpec& spec, WeightsReport& report) {
  if (!is_torch_file(spec.file)) {
    auto file = std::make_unique<SafetensorsFile>(SafetensorsFile::open(spec.file));
    if (!spec.key) return file;
    fail(ErrorKind::data,
         "{}: weights.key: expected a PyTorch file, which may hold several dictionaries, found a "
         "safetensors file: remove the key",
         spec.file);
  }
  auto file = std::make_unique<TorchFile>(TorchFile::open(spec.file));
  file->choose(spec.key);
  report.key = file->chosen().key;
  for (const TorchDictionary& each : file->dictionaries()) {
    if (&each != &file->chosen()) report.other_keys.push_back(each.key);
  }
  return file;
}

class WeightsLoader {
 public:
  WeightsLoader(const WeightsSpec& spec, const Plan& plan, const std::vector<std::string>* classes,
                float* flat)
      : spec_(spec),
        plan_(plan),
        classes_(classes),
        flat_(flat),
        holder_(open_weights(spec, report_)),
        file_(*holder_),
        renaming_(spec.map) {}

  WeightsReport load() {
    if (file_.check_integrity() == Integrity::mismatch) {
      fail(ErrorKind::data, "{}: the file is damaged: its bytes do not match its checksum",
           file_.path());
    }
    choose_average();
    map_names();
    if (spec_.head) prepare_head();
    for (const Param& param : plan_.params) load_param(param);
    for (const TensorEntry& entry : file_.tensors()) {
      if (!is_ours(entry.name) && !used_.contains(&entry)) report_.left_over.push_back(entry.name);
    }
    return std::move(report_);
  }

 private:
  bool has_average(WeightsUse use) const {
    const auto& tensors = file_.tensors();
    const std::string prefix = average_prefix(use);
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const TensorEntry& entry) { return entry.name.starts_with(prefix); });
  }

  void choose_average() {
    for (const WeightsUse average : {WeightsUse::ema, WeightsUse::swa}) {
      if (has_average(average)) {
        if (!spec_.use || spec_.use == WeightsUse::raw || spec_.use == average) {
          report_.use = spec_.use.value_or(average);
        }
      } else if (spec_.use == average) {
        fail(ErrorKind::data,
             "{}: weights.use: {}: expected an average of the weights (tensors {}*), found none: "
             "the file is not a checkpoint of a run with train.{}",
             file_.path(), name_of(average), average_prefix(average), name_of(average));
      }
    }
  }

  void map_names() {
    std::set<std::string_view> names;
    for (const TensorEntry& entry : file_.tensors()) {
      if (!is_ours(entry.name)) names.insert(entry.name);
    }
    for (const auto& pair : spec_.map) {
      const auto first = names.lower_bound(pair.first);
      if (first == names.end() || !first->starts_with(pair.first)) refuse_entry(pair);
    }
    for (const TensorEntry& entry : file_.tensors()) {
      if (is_ours(entry.name)) continue;
      const auto [other, is_new] = by_name_.emplace(renaming_.renamed(entry.name), &entry);
      if (is_new) continue;
      fail(ErrorKind::data, "{}: weights.map gives one name, '{}', to two tensors: '{}' and '{}'",
           file_.path(), other->first, other->second->name, entry.name);
    }
  }

  /// Throws for an entry of the map that matches no name of the file.
  [[noreturn]] void refuse_entry(const std::pair<std::string, std::string>& entry) const {
    std::vector<std::string> names, wanted;
    for (const TensorEntry& tensor : file_.tensors()) {
      if (is_ours(tensor.name)) continue;
      const std::string mapped = renaming_.renamed(tensor.name);
      names.push_back(
          mapped == tensor.name ? mapped : fmt::format("{} (mapped to {})", tensor.name, mapped));
    }
    for (const Param& param : plan_.params) wanted.push_back(param.name);
    fail(ErrorKind::data,
         "{}: weights.map: the entry '{}: {}' has no effect: no tensor's name begins with '{}'. "
         "The file has {}; the model has {}. Correct or remove the entry",
         file_.path(), entry.first, entry.second, entry.first, some(names), some(wanted));
  }

  void prepare_head() {
    HeadReport head;
    const bool is_new = spec_.head == HeadRows::fresh;
    head.is_new = is_new;
    head.layer = is_new ? last_layer(plan_) : head_of(plan_);
    if (head.layer.empty()) {
      fail(ErrorKind::data, "{}: weights.head: {}: expected a model {}", file_.path(),
           name_of(*spec_.head),
           is_new ? "with a layer that has parameters, found none"
                  : fmt::format("whose last layer with parameters is a Linear or Conv2d with {} "
                                "outputs, one for each class",
                                plan_.classes));
    }
    report_.head = std::move(head);
    if (!is_new) compare_classes();
  }

  /// Finds the rows in the file that belong to the data's classes.
  void compare_classes() {
    if (!file_.metadata().contains("dpt.classes")) {
      fail(ErrorKind::data,
           "{}: weights.head: by_class_name: expected a checkpoint of dpt, which holds the names "
           "of its classes ('dpt.classes'), found none. To keep the layer's initial values, set "
           "weights.head: new",
           file_.path());
    }
    file_classes_ = stored_classes(file_.path(), file_.metadata());
    for (const std::string& name : file_classes_) {
      row_of_class_.emplace(name, static_cast<std::ptrdiff_t>(row_of_class_.size()));
    }
    if (!classes_) return;
    HeadReport& head = *report_.head;
    for (const std::string& name : *classes_) {
      (row_of_class_.contains(name) ? head.copied : head.fresh).push_back(name);
    }
    if (head.copied.empty()) {
      fail(ErrorKind::data,
           "{}: weights.head: by_class_name: none of its classes ({}) is a class of the data ({}). "
           "To keep the layer's initial values, set weights.head: new",
           file_.path(), some(file_classes_), some(*classes_));
    }
  }

  bool is_head(const Param& param) const {
    return report_.head && (report_.head->is_new || !param.spec.file_shape.empty()) &&
           plan_.nodes[param.node].name == report_.head->layer;
  }

  /// Returns the tensor with the values of a parameter: the average's tensor, or the entry itself.
  const TensorEntry& values_of(const TensorEntry& entry, const Param& param) const {
    // Counters are not averaged.
    if (report_.use.value_or(WeightsUse::raw) == WeightsUse::raw ||
        param.spec.role == ParamRole::counter) {
      return entry;
    }
    const TensorEntry* average = file_.find(average_prefix(*report_.use) + entry.name);
    if (average) return *average;
    fail(ErrorKind::data,
         "{}: expected the average '{}{}', found none: set weights.use=raw to load '{}' instead",
         file_.path(), average_prefix(*report_.use), entry.name, entry.name);
  }

  /// Returns true if the tensor has the parameter's shape or, where the spec allows it, another
  /// shape with the same first size and the same number of values.
  bool fits(const TensorEntry& entry, const Param& param) const {
    const std::vector<std::int64_t>& wanted = param.spec.file_shape;
    if (entry.shape == wanted) return true;
    if (!spec_.takes_other_shapes || entry.shape.empty() || wanted.empty()) return false;
    const auto count = [](const std::vector<std::int64_t>& shape) {
      return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    };
    return entry.shape[0] == wanted[0] && count(entry.shape) == count(wanted);
  }

  /// Returns true if the shape differs and both of the spec's pattern lists match the tensor. Such
  /// a tensor is not loaded.
  bool is_set_aside(const TensorEntry& entry, const Param& param) const {
    return !fits(entry, param) && matches_any(spec_.expect_missing, param.name) &&
           matches_any(spec_.expect_left_over, entry.name);
  }

  void load_param(const Param& param) {
    const auto found = by_name_.find(param.name);
    const bool is_new = is_head(param) && report_.head->is_new;
    if (is_new) {
      if (found != by_name_.end()) skip(*found->second);
      return;
    }
    if (found == by_name_.end() || (!is_head(param) && is_set_aside(*found->second, param))) {
      load_without(param);
      return;
    }
    const TensorEntry& entry = *found->second;
    const TensorEntry& values = values_of(entry, param);
    used_.insert(&entry);
    report_.loaded.push_back(param.name);
    report_.used.push_back(entry.name);
    if (is_head(param)) {
      load_rows(values, param);
      return;
    }
    if (!fits(entry, param)) refuse_shape(entry, param);
    if (!fits(values, param)) check_shape(file_, values, param);
    read_into(file_, values, param, flat_);
    std::vector<float> read(static_cast<std::size_t>(param.count));
    to_file_layout(param, flat_ + param.offset, read.data());
    check_values(values, param, read);
  }

  /// Records a tensor of the last layer that is in the file but is not read.
  void skip(const TensorEntry& entry) {
    used_.insert(&entry);
    report_.head->skipped.push_back(entry.name);
  }

  /// Records a parameter that the file lacks. A counter that matches no pattern is set to 0, as in
  /// PyTorch, whose older files have no counters.
  void load_without(const Param& param) {
    const bool is_counter = param.spec.role == ParamRole::counter;
    if (!is_counter || matches_any(spec_.expect_missing, param.name)) {
      report_.missing.push_back(param.name);
      return;
    }
    const std::vector<std::int64_t> zeros(static_cast<std::size_t>(param.count));
    put_counts(param, zeros, flat_ + param.offset);
    report_.zeroed.push_back(param.name);
  }

  /// Throws if `read`, the values of a tensor, contains a non-finite value or a negative variance.
  /// The former would show in the first loss, and the square root of the latter is NaN.
  void check_values(const TensorEntry& entry, const Param& param,
                    const std::vector<float>& read) const {
    const bool is_variance =
        param.spec.role == ParamRole::running && param.name.ends_with("running_var");
    const auto is_bad = [&](float value) {
      return !std::isfinite(value) || (is_variance && value < 0);
    };
    const auto first = std::find_if(read.begin(), read.end(), is_bad);
    if (first == read.end()) return;
    std::vector<std::int64_t> index(entry.shape.size());
    std::int64_t rest = first - read.begin();
    for (std::size_t i = entry.shape.size(); i-- > 0;) {
      index[i] = rest % entry.shape[i];
      rest /= entry.shape[i];
    }
    fail(ErrorKind::data,
         "{}: tensor '{}': expected {}, found {} at [{}] ({} of {} values): these are the weights "
         "of a failed training run; start from earlier ones",
         file_.path(), entry.name, is_variance ? "finite variances, not below 0" : "finite numbers",
         shown(*first), fmt::join(index, ", "), std::count_if(first, read.end(), is_bad),
         read.size());
  }

  /// Formats a value. Omits the sign of a NaN, which is meaningless.
  static std::string shown(float value) {
    return std::isnan(value) ? "nan" : fmt::format("{:g}", value);
  }

  [[noreturn]] void refuse_shape(const TensorEntry& entry, const Param& param) const {
    std::string text = fmt::format(
        "{}: tensor '{}': expected the shape [{}] of the config's model, found [{}]", file_.path(),
        entry.name, fmt::join(param.spec.file_shape, ", "), fmt::join(entry.shape, ", "));
    const Node& node = plan_.nodes[param.node];
    const bool is_first_conv = !node.inputs.empty() && node.inputs[0] == 0 &&
                               param.spec.layout == ParamLayout::ohwi && entry.shape.size() == 4;
    if (is_first_conv && entry.shape[1] != param.spec.file_shape[1]) {
      text += fmt::format(
          "; '{}' reads images of {} (model.input), but the file's layer reads {}: dpt "
          "does not adapt the channels of a file's weights",
          node.name, counted(param.spec.file_shape[1], "channel"), entry.shape[1]);
    } else if (is_first_conv && entry.shape[2] != param.spec.file_shape[2]) {
      text += fmt::format(
          "; '{}' of the file's network has a kernel of {}x{}, like that of a ResNet of the zoo "
          "with model.stem=imagenet",
          node.name, entry.shape[2], entry.shape[3]);
    } else if (last_layer(plan_) == node.name) {
      text += ". To keep this layer's initial values, add to the config's `weights`:\n  head: new";
    } else {
      text += fmt::format(
          ". To keep the initial values instead, add to the config's `weights`:\n  expect_missing: "
          "{}\n  expect_left_over: {}",
          pattern_for_layer(param.name), pattern_for_layer(entry.name));
    }
    throw Error(ErrorKind::data, text);
  }

  /// Copies the file's row of each class to the row of that class in `param`, for the classes of
  /// the data that the file has.
  void load_rows(const TensorEntry& entry, const Param& param) {
    const auto rows = static_cast<std::size_t>(param.spec.file_shape[0]);
    std::vector<std::int64_t> expected = param.spec.file_shape;
    expected[0] = static_cast<std::int64_t>(file_classes_.size());
    if (entry.shape != expected) {
      fail(ErrorKind::data,
           "{}: tensor '{}': weights.head: by_class_name: expected the shape [{}], a row for each "
           "class of the file, found [{}]",
           file_.path(), entry.name, fmt::join(expected, ", "), fmt::join(entry.shape, ", "));
    }
    if (!classes_) return;
    if (rows != classes_->size()) {
      fail(ErrorKind::data,
           "weights.head: by_class_name: expected a row of '{}' for each of the {} classes of the "
           "data, found {}",
           param.name, classes_->size(), rows);
    }
    const std::vector<float> from = file_.read_floats(entry);
    check_values(entry, param, from);
    std::vector<float> to(static_cast<std::size_t>(param.count));
    to_file_layout(param, flat_ + param.offset, to.data());
    const std::size_t width = to.size() / rows;
    for (std::size_t row = 0; row < rows; ++row) {
      const auto old = row_of_class_.find((*classes_)[row]);
      if (old == row_of_class_.end()) continue;
      const auto begin = old->second * static_cast<std::ptrdiff_t>(width);
      std::copy_n(from.begin() + begin, width,
                  to.begin() + static_cast<std::ptrdiff_t>(row * width));
    }
    from_file_layout(param, to.data(), flat_ + param.offset);
  }

  const WeightsSpec& spec_;
  const Plan& plan_;
  const std::vector<std::string>* classes_;
  float* flat_;
  WeightsReport report_;
  std::unique_ptr<const TensorFile> holder_;
  const TensorFile& file_;
  Renaming renaming_;
  std::map<std::string, const TensorEntry*> by_name_;  ///< by name in the model
  std::set<const TensorEntry*> used_;
  std::vector<std::string> file_classes_;
  std::map<std::string_view, std::ptrdiff_t> row_of_class_;  ///< row of each of file_classes_
};

}  // namespace

WeightsReport load_weights(const WeightsSpec& spec, const Plan& plan,
                           const std::vector<std::string>* classes, float* flat) {
  return WeightsLoader(spec, plan, classes, flat).load();
}

}  // namespace dpt
