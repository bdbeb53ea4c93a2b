#include "datasets/class_table.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "datasets/requirements.h"
#include "engine/config/suggest.h"
#include "engine/data/data_sets.h"
#include "kernels/base/error.h"
#include "kernels/base/json_text.h"

namespace dpt {
namespace {

constexpr std::int64_t kMaxTableClasses = 1'000'000;

/// Returns true if `a` comes before `b`: numbers first, by value, then other names byte by byte.
bool is_class_before(const std::string& a, const std::string& b) {
  const auto number = [](const std::string& text) -> std::optional<std::uint64_t> {
    std::uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || at != end) return std::nullopt;
    return value;
  };
  const std::optional<std::uint64_t> x = number(a), y = number(b);
  if (x.has_value() != y.has_value()) return x.has_value();
  return x == y ? a < b : x < y || (!x && a < b);
}

/// Returns true if the names are just the numbers 0, 1, ...
bool are_numbers(const std::vector<std::string>& names) {
  return names == numbered_classes(static_cast<std::int64_t>(names.size()));
}

/// Returns the name as a checkpoint stores it.
std::string utf8_of(std::string_view name) {
  using Json = nlohmann::json;
  return Json::parse(json_text(Json(std::string(name)))).get<std::string>();
}

/// Returns the name, quoted for messages.
std::string quoted_class(std::string_view name) {
  constexpr std::size_t kMax = 40;
  return fmt::format("'{}{}'", name.substr(0, kMax), name.size() > kMax ? "..." : "");
}

/// Returns a note about classes that have no samples in `source`; empty if there are none.
std::string gap_of(const DataSource& source, const char* split) {
  const std::vector<std::string>& classes = source.classes();
  std::vector<bool> has(classes.size());
  for (std::int64_t i = 0; i < source.size(); ++i) {
    has[source.label(i)] = true;
  }
  std::vector<std::string> missing;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    if (!has[c]) missing.push_back(classes[c]);
  }
  if (missing.empty()) return {};
  return fmt::format("the {} data has no samples of {} of the {} classes: {}", split,
                     missing.size(), classes.size(), some_of(missing));
}

}  // namespace

std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMax = 5;
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kMax; ++i) {
    const bool is_clear = names[i].find(',') == std::string::npos;
    text += (i ? ", " : "") + (is_clear ? names[i] : "'" + names[i] + "'");
  }
  return names.size() > kMax ? text + ", ..." : text;
}

std::string problem_of_classes(const std::vector<std::string>& classes) {
  std::set<std::string> known;
  for (const std::string& name : classes) {
    if (known.insert(name).second) continue;
    return fmt::format("classes: expected different names, found '{}' twice", name);
  }
  return {};
}

ClassTable::ClassTable(std::vector<std::string> given, std::string training,
                       const DataRequirements& requirements)
    : given_(std::move(given)),
      names_(requirements.known_classes.empty() ? given_ : requirements.known_classes),
      training_(std::move(training)),
      outputs_(requirements.classes),
      is_of_checkpoint_(!requirements.known_classes.empty()),
      is_given_(!names_.empty()) {
  const std::string problem = problem_of_classes(given_);
  if (!problem.empty()) throw Error(ErrorKind::usage, "data." + problem);
  owner_ = is_of_checkpoint_ ? "the checkpoint" : is_given_ ? "data.classes" : training_;
  if (is_given_ && !is_of_checkpoint_) check_classes("data.classes", names_.size(), requirements);
  for (const std::string& name : names_) {
    numbers_.emplace(name, static_cast<std::int32_t>(numbers_.size()));
  }
}

void ClassTable::refuse_name(std::string_view name, const Where& where) const {
  std::vector<std::string> names = names_;
  if (names.empty()) {
    for (const auto& [known, number] : numbers_) names.push_back(known);
  }
  const std::string near = closest(std::string(name), names);
  const char* const advice = is_of_checkpoint_ ? "leave it out: the model has no output for it"
                             : is_given_       ? "add it there, or remove its samples"
                                               : "add samples to train on, or remove these";
  fail(ErrorKind::data, "{}: {} has no class {}; {}", where(), owner_, quoted_class(name),
       near.empty()
           ? advice
           : fmt::format("it has {} (names are compared byte by byte)", quoted_class(near)));
}

std::int32_t ClassTable::label_of_name(std::string_view name, const Where& where) {
  const auto found = numbers_.find(name);
  if (found != numbers_.end()) return found->second;
  if (const std::string text = utf8_of(name); text != name) {
    const std::string& before = replaced_.emplace(text, name).first->second;
    if (before == name) return label_of_name(text, where);
    fail(ErrorKind::data,
         "{}: found two class names that are not UTF-8 and would both be stored as {}: rename one",
         where(), quoted_class(text));
  }
  if (is_given_ || is_closed_) refuse_name(name, where);
  const auto next = static_cast<std::int32_t>(numbers_.size());
  if (next >= kMaxTableClasses) {
    fail(ErrorKind::data, "{}: expected at most {} classes, found more: are these the labels?",
         where(), kMaxTableClasses);
  }
  numbers_.emplace(name, next);
  return next;
}

/// Decides, once, whether numbers are positions in data.classes or in the table.
void ClassTable::choose_numbers(const Where& where) {
  has_numbers_ = true;
  if (!is_of_checkpoint_) return;
  const std::vector<std::string> of_checkpoint = names_;
  if (given_.empty()) {
    if (are_numbers(of_checkpoint)) return;
    fail(ErrorKind::data,
         "{}: expected class names, as in the checkpoint ({}), found class numbers: name the "
         "data's classes in data.classes, in the order of their numbers",
         where(), some_of(of_checkpoint));
  }
  if (are_numbers(of_checkpoint) && given_.size() == of_checkpoint.size()) {
    // The run did not name its classes, but this config does.
    names_ = given_;
    return;
  }
  if (given_ == of_checkpoint) return;
  for (const std::string& name : given_) {
    const auto found = numbers_.find(name);
    places_.push_back(found == numbers_.end() ? -1 : found->second);
  }
}

std::int32_t ClassTable::label_of_number(std::int64_t number, const Where& where) {
  if (!has_numbers_) choose_numbers(where);
  std::size_t limit = kMaxTableClasses;
  if (!places_.empty()) {
    limit = places_.size();
  } else if (is_given_ || is_closed_) {
    limit = names_.size();
  } else if (outputs_ > 0) {
    limit = static_cast<std::size_t>(outputs_);
  }
  if (number < 0 || number >= static_cast<std::int64_t>(limit)) {
    check_label(number, limit, where());
  }
  largest_ = std::max(largest_, number);
  if (places_.empty()) return static_cast<std::int32_t>(number);
  const std::int32_t place = places_[number];
  if (place < 0) refuse_name(given_[number], where);
  return place;
}

void ClassTable::close(ClassOrder order, std::span<std::int32_t> labels) {
  is_closed_ = true;
  if (is_given_) return;
  if (has_numbers_) {
    names_ = numbered_classes(outputs_ > 0 ? outputs_ : largest_ + 1);
    return;
  }
  for (const auto& [name, number] : numbers_) names_.push_back(name);
  if (order == ClassOrder::numbers_first) {
    std::sort(names_.begin(), names_.end(), is_class_before);
  }
  std::vector<std::int32_t> final_labels(names_.size());
  for (std::size_t i = 0; i < names_.size(); ++i) {
    std::int32_t& number = numbers_.find(names_[i])->second;
    final_labels[number] = static_cast<std::int32_t>(i);
    number = static_cast<std::int32_t>(i);
  }
  for (std::int32_t& label : labels) label = final_labels[label];
}

std::string difference_of_classes(const std::vector<std::string>& expected,
                                  const std::vector<std::string>& found) {
  if (expected == found) return {};
  std::string text;
  const auto add = [&](const char* what, const std::vector<std::string>& from,
                       const std::vector<std::string>& other) {
    const std::set<std::string> known(other.begin(), other.end());
    std::vector<std::string> only;
    for (const std::string& name : from) {
      if (!known.contains(name)) only.push_back(name);
    }
    if (only.empty()) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", what, some_of(only));
  };
  add("missing", expected, found);
  add("unknown", found, expected);
  if (!text.empty()) return text;
  for (std::size_t i = 0; i < std::min(expected.size(), found.size()); ++i) {
    if (expected[i] == found[i]) continue;
    return fmt::format("in another order: number {} is {}, not {}", i, quoted_class(found[i]),
                       quoted_class(expected[i]));
  }
  return fmt::format("{} of them instead of {}", found.size(), expected.size());
}

void check_class_tables(DataSets& sets, const std::vector<std::string>& known) {
  // If only one part was opened, use its classes.
  const DataSource* first = sets.train ? sets.train.get()
                            : sets.val ? sets.val.get()
                                       : sets.test.get();
  if (!first) return;
  const std::vector<std::string>& classes = first->classes();
  const auto are_equal = [&](const std::vector<std::string>& others) {
    // The number of numbered classes may differ: without a model, it follows from the largest
    // label.
    return others == classes || (are_numbers(others) && are_numbers(classes));
  };
  for (const auto& [source, part] :
       {std::pair(sets.val.get(), "validation"), std::pair(sets.test.get(), "test")}) {
    if (!source || are_equal(source->classes())) continue;
    fail(ErrorKind::data,
         "the classes of the {} data are not those of the training data: {} ({} classes, and {} in "
         "the training data)",
         part, difference_of_classes(classes, source->classes()), source->classes().size(),
         classes.size());
  }
  // A config may add names to the classes of a run that had only numbers.
  const bool is_named_later = are_numbers(known) && known.size() == classes.size();
  if (!known.empty() && known != classes && !is_named_later) {
    fail(ErrorKind::data,
         "the data's classes are not those of the checkpoint: {}. The labels would refer to the "
         "wrong outputs: if only the names differ, set data.classes to the checkpoint's name for "
         "each "
         "class, in the data's order; otherwise use data with the checkpoint's classes",
         difference_of_classes(known, classes));
  }
  if (first->targets().kind != TargetKind::class_index || are_numbers(classes)) return;
  for (const auto& [source, split] :
       {std::pair(sets.train.get(), "training"), std::pair(sets.val.get(), "validation"),
        std::pair(sets.test.get(), "test")}) {
    if (!source) continue;
    const std::string gap = gap_of(*source, split);
    if (!gap.empty()) sets.notes.push_back(gap);
  }
}

}  // namespace dpt
