#include "engine/config/values.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/config/issue.h"
#include "engine/config/paths.h"
#include "engine/config/scalars.h"
#include "engine/config/stored_paths.h"
#include "engine/config/suggest.h"

namespace dpt {
namespace {

std::string range_text(const Field& field) {
  if (field.min && field.max) {
    return field.min_is_exclusive
               ? fmt::format(" above {} and at most {}", number_text(*field.min),
                             number_text(*field.max))
               : fmt::format(" from {} to {}", number_text(*field.min), number_text(*field.max));
  }
  if (field.min) {
    return fmt::format("{} {}", field.min_is_exclusive ? " above" : " of at least",
                       number_text(*field.min));
  }
  return field.max ? fmt::format(" of at most {}", number_text(*field.max)) : std::string{};
}

/// Returns dpt's choice for a name in other systems; empty if there is none.
std::string other_value(const std::string& value, const std::vector<std::string>& choices) {
  static constexpr std::array<std::pair<const char*, const char*>, 9> kOthers = {{
      {"he_normal", "kaiming_normal"},
      {"he_uniform", "kaiming_uniform"},
      {"msra", "kaiming_normal"},
      {"glorot_normal", "xavier_normal"},
      {"glorot_uniform", "xavier_uniform"},
      {"xavier", "xavier_uniform"},
      {"gaussian", "normal"},
      {"zeros", "constant"},
      {"ones", "constant"},
  }};
  for (const auto& [theirs, ours] : kOthers) {
    if (value == theirs && std::find(choices.begin(), choices.end(), ours) != choices.end()) {
      return ours;
    }
  }
  return {};
}

/// Returns the numbers to write in a normalisation instead of "imagenet", which other systems
/// accept; empty for other fields.
std::string numbers_of_imagenet(const std::string& field) {
  const std::string mean = "[0.485, 0.456, 0.406]", std = "[0.229, 0.224, 0.225]";
  if (field == "mean") return mean;
  if (field == "std") return std;
  return field == "mode" ? fmt::format("{{mean: {}, std: {}}}", mean, std) : std::string();
}

bool in_range(const Field& field, double value) {
  if (field.min && (field.min_is_exclusive ? !(value > *field.min) : !(value >= *field.min))) {
    return false;
  }
  return !field.max || value <= *field.max;
}

std::string list_text(const Field& field, const std::string& one, const std::string& many) {
  if (!field.min_items) return fmt::format("a list of {}", many);
  if (*field.min_items == *field.max_items) {
    return fmt::format("a list of {} {}", *field.min_items, many);
  }
  return fmt::format("a list of at least {} {}", *field.min_items,
                     *field.min_items == 1 ? one : many);
}

/// Returns "a number or ", the prefix of a list's description, if one element may replace a list.
std::string one_text(const Field& field, const char* one) {
  return field.one_is_list ? fmt::format("{} or ", one) : std::string{};
}

/// Returns a field for a single element of the list that `field` describes.
Field element_of(const Field& field) {
  Field one = field;
  one.min_items.reset();
  one.max_items.reset();
  switch (field.type) {
    case FieldType::numbers:
      one.type = FieldType::number;
      break;
    case FieldType::integers:
    case FieldType::size2:
      one.type = FieldType::integer;
      break;
    default:
      one.type = FieldType::string;
  }
  return one;
}

class Converter {
 public:
  Converter(const Field& field, std::vector<ConfigIssue>& issues, Author author)
      : field_(field), issues_(issues), author_(author) {}

  bool convert(const YamlNode& node, PlainValue& value) {
    if (node.kind == YamlNode::Kind::broken) return false;
    switch (field_.type) {
      case FieldType::boolean:
        return keep(read_boolean(node), node, value);
      case FieldType::integer:
        return integer(node, value);
      case FieldType::number:
        return number(node, value);
      case FieldType::string:
      case FieldType::choice:
        return string(node, value);
      case FieldType::path:
        return path(node, value);
      case FieldType::size2:
        return size2(node, value);
      case FieldType::numbers:
        return list<double>(node, value);
      case FieldType::integers:
        return list<std::int64_t>(node, value);
      case FieldType::strings:
        return list<std::string>(node, value);
      case FieldType::texts:
        return texts(node, value);
      default:
        return false;  // the Binder reads objects and variants
    }
  }

 private:
  bool refuse(const YamlNode& node, const std::string& hint) {
    std::string text =
        fmt::format("expected {}, found {}", expected_text(field_), found_text(node));
    const std::string numbers =
        lower_case(node.text) == "imagenet" ? numbers_of_imagenet(field_.name) : std::string();
    if (!numbers.empty()) {
      text += "; write " + numbers;
    } else if (!hint.empty()) {
      text += "; " + hint;
    } else if (node.kind == YamlNode::Kind::scalar && has_variable(node.text)) {
      text += "; variables (${...}) are expanded only in paths";
    }
    issues_.push_back({node.where, std::move(text)});
    return false;
  }

  template <class T>
  bool keep(const Scalar<T>& scalar, const YamlNode& node, PlainValue& value) {
    if (!scalar.value) return refuse(node, scalar.hint);
    value = *scalar.value;
    return true;
  }

  bool is_zero_word(const YamlNode& node) const {
    return !field_.zero_word.empty() && node.kind == YamlNode::Kind::scalar &&
           node.text == field_.zero_word;
  }

  bool integer(const YamlNode& node, PlainValue& value) {
    if (is_zero_word(node)) {
      value = std::int64_t{0};
      return true;
    }
    const Scalar<std::int64_t> scalar = read_integer(node);
    const bool is_word = scalar.value == 0 && !field_.zero_word.empty();
    if (scalar.value && !is_word && !in_range(field_, static_cast<double>(*scalar.value))) {
      return refuse(node, {});
    }
    return keep(scalar, node, value);
  }

  bool number(const YamlNode& node, PlainValue& value) {
    const Scalar<double> scalar = read_number(node);
    if (scalar.value && !in_range(field_, *scalar.value)) return refuse(node, {});
    return keep(scalar, node, value);
  }

  bool is_choice(const std::string& text) const {
    return std::find(field_.choices.begin(), field_.choices.end(), text) != field_.choices.end();
  }

  bool string(const YamlNode& node, PlainValue& value) {
    const Scalar<std::string> scalar = read_string(node);
    if (scalar.value && !field_.choices.empty() && !is_choice(*scalar.value)) {
      std::string near = other_value(*scalar.value, field_.choices);
      if (near.empty()) near = closest(*scalar.value, field_.choices);
      return refuse(node, near.empty() ? std::string{} : fmt::format("did you mean '{}'?", near));
    }
    if (!scalar.value) {
      const bool is_device = field_.name == "devices" && read_integer(node).value;
      if (!field_.choices.empty() && !is_choice(node.text)) return refuse(node, {});
      return refuse(node, is_device ? hint_of_device(node.text) : scalar.hint);
    }
    if (author_ == Author::user && has_variable(*scalar.value)) {
      issues_.push_back(
          {node.where, fmt::format("expected text without a variable, found {}: ${{...}} is "
                                   "expanded only in paths; write $${{ for a literal ${{",
                                   in_quotes(*scalar.value))});
      return false;
    }
    value = unescape_text(*scalar.value);
    return true;
  }

  bool path(const YamlNode& node, PlainValue& value) {
    const Scalar<std::string> scalar = read_string(node);
    if (!scalar.value) return refuse(node, scalar.hint);
    if (scalar.value->empty() && field_.is_required) return refuse(node, {});
    if (!field_.path_word.empty() && *scalar.value == field_.path_word) {
      value = *scalar.value;
      return true;
    }
    const ExpandedPath expanded = expand_variables(*scalar.value, field_.takes_url);
    if (expanded.is_unset && author_ == Author::dpt) {
      remember_secret_path(*scalar.value, *scalar.value);
      value = *scalar.value;
      return true;
    }
    if (!expanded.problem.empty()) {
      issues_.push_back({node.where, expanded.problem});
      return false;
    }
    const std::string variable = expanded.defaulted;
    const bool is_argument = node.where.line == 0;
    const std::string file = is_argument ? std::string{} : node.where.file;
    const std::string path = resolve_path(expanded.path, file);
    if (!expanded.stored.empty()) {
      const bool is_absolute = expanded.path.starts_with('/') || is_remote(expanded.path);
      const std::string folder =
          is_absolute ? std::string{} : escape_variables(resolve_path("./", file));
      remember_secret_path(path, folder + expanded.stored);
    }
    if (!variable.empty()) remember_defaulted(path, variable);
    value = path;
    return true;
  }

  bool size2(const YamlNode& node, PlainValue& value) {
    if (!field_.size_word.empty() && node.kind == YamlNode::Kind::scalar &&
        node.text == field_.size_word) {
      value = kWordSize;
      return true;
    }
    if (!node.is_list()) {
      const Scalar<std::int64_t> scalar = read_integer(node);
      if (!scalar.value) return refuse(node, scalar.hint);
      if (!in_range(field_, static_cast<double>(*scalar.value))) return refuse(node, {});
      value = Size2{*scalar.value, *scalar.value};
      return true;
    }
    if (node.children.size() != 2) return refuse(node, {});
    PlainValue h, w;
    const Field one = element_of(field_);
    const bool has_h = Converter(one, issues_, author_).convert(node.children[0], h);
    const bool has_w = Converter(one, issues_, author_).convert(node.children[1], w);
    if (!has_h || !has_w) return false;
    value = Size2{std::get<std::int64_t>(h), std::get<std::int64_t>(w)};
    return true;
  }

  /// Returns the hint for a single number in place of a list.
  std::string hint_of_list(const YamlNode& node) const {
    if (!field_.min_items || *field_.min_items <= 1) return fmt::format("write [{}]", node.text);
    // The documentation of such a field shows the form.
    const std::size_t open = field_.doc.find('['), close = field_.doc.find(']');
    if (open == std::string::npos || close == std::string::npos || close < open) return {};
    std::string hint = "write " + field_.doc.substr(open, close + 1 - open);
    if (field_.name == "input") hint += fmt::format(", such as [3, {0}, {0}]", node.text);
    return hint;
  }

  template <class T>
  bool list(const YamlNode& node, PlainValue& value) {
    const Field one = element_of(field_);
    std::vector<T> all;
    if (is_zero_word(node)) {
      value = std::move(all);
      return true;
    }
    if (!node.is_list()) {
      if constexpr (std::is_same_v<T, std::string>) {
        if (node.kind != YamlNode::Kind::scalar) return refuse(node, {});
        PlainValue single;
        if (!Converter(one, issues_, author_).convert(node, single)) return false;
        value = std::vector<T>{std::get<T>(single)};
        return true;
      } else {
        std::vector<ConfigIssue> ignored;
        PlainValue single;
        const bool is_one = Converter(one, ignored, author_).convert(node, single);
        if (is_one && field_.one_is_list) {
          value = std::vector<T>{std::get<T>(single)};
          return true;
        }
        return refuse(node, is_one ? hint_of_list(node) : std::string{});
      }
    }
    const std::size_t n = node.children.size();
    if (field_.min_items && (n < *field_.min_items || n > *field_.max_items)) {
      return refuse(node, most_text(field_, n));
    }
    bool is_good = true;
    for (const YamlNode& child : node.children) {
      PlainValue element;
      if (Converter(one, issues_, author_).convert(child, element)) {
        all.push_back(std::get<T>(element));
      } else {
        is_good = false;
      }
    }
    value = std::move(all);
    return is_good;
  }

  bool texts(const YamlNode& node, PlainValue& value) {
    if (!node.is_map()) return refuse(node, {});
    const Field one = element_of(field_);
    TextPairs all;
    bool is_good = true;
    for (const YamlNode& child : node.children) {
      PlainValue text;
      if (Converter(one, issues_, author_).convert(child, text)) {
        all.emplace_back(child.key, std::get<std::string>(text));
      } else {
        is_good = false;
      }
    }
    value = std::move(all);
    return is_good;
  }

  const Field& field_;
  std::vector<ConfigIssue>& issues_;
  Author author_;
};

}  // namespace

std::string hint_of_device(const std::string& number) {
  return fmt::format(
      "write cuda:{} for the GPU of that number, cpu:{} for the CPU with that many threads, or a "
      "list with a device for each replica, such as [cuda:0, cuda:1]",
      number, number == "0" ? "1" : number);
}

std::string expected_text(const Field& field) {
  const std::string range = range_text(field);
  switch (field.type) {
    case FieldType::boolean:
      return "true or false";
    case FieldType::integer:
      if (!field.zero_word.empty())
        return fmt::format("{} or an integer{}", field.zero_word, range);
      if (field.min && field.min == field.max) return number_text(*field.min);
      return "an integer" + range;
    case FieldType::number:
      return "a number" + range;
    case FieldType::string:
      return "a string";
    case FieldType::choice:
      if (field.choices.size() == 1) return fmt::format("'{}'", field.choices[0]);
      return fmt::format("one of {}", fmt::join(field.choices, ", "));
    case FieldType::path:
      if (!field.takes_url) return "a path";
      return field.path_word.empty() ? "a path or URL"
                                     : fmt::format("a path, a URL or {}", field.path_word);
    case FieldType::size2:
      return fmt::format("{}an integer{} or [height, width]",
                         field.size_word.empty() ? "" : "'" + field.size_word + "', ", range);
    case FieldType::numbers:
      return (field.zero_word.empty() ? "" : field.zero_word + " or ") +
             one_text(field, "a number") + list_text(field, "number", "numbers") +
             (range.empty() ? "" : ", each" + range);
    case FieldType::integers:
      return one_text(field, "an integer") + list_text(field, "integer", "integers") +
             (range.empty() ? "" : ", each" + range);
    case FieldType::strings:
      return "a string or " + list_text(field, "string", "strings");
    case FieldType::texts:
      return "a mapping from strings to strings";
    case FieldType::object:
      if (!field.plain_key.empty()) return expected_text(plain_field(field)) + ", or a mapping";
      return "a mapping";
    case FieldType::objects:
      return list_text(field, field.object->name, field.object->name + "s");
    case FieldType::variant:
      return fmt::format("a mapping with '{}'", field.variants->tag);
    case FieldType::variants:
      return list_text(field, field.variants->what, field.variants->what + "s");
    case FieldType::patch:
      return "a list of changes";
  }
  return {};
}

const Field& plain_field(const Field& object) {
  const std::vector<Field>& all = object.object->fields;
  return *std::find_if(all.begin(), all.end(),
                       [&](const Field& field) { return field.name == object.plain_key; });
}

std::string most_text(const Field& field, std::size_t count) {
  if (!field.max_items || count <= *field.max_items || field.min_items == field.max_items)
    return {};
  return fmt::format("at most {} are accepted", *field.max_items);
}

bool convert_value(const Field& field, const YamlNode& node, PlainValue& value,
                   std::vector<ConfigIssue>& issues, Author author) {
  return Converter(field, issues, author).convert(node, value);
}

}  // namespace dpt
