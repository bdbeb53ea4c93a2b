#include "engine/config/key_suggestions.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "engine/config/scalars.h"

namespace dpt {
namespace {

/// Names of fields in other systems, each with a name in dpt. A name occurs several times if its
/// meaning depends on the mapping.
constexpr std::array<std::pair<const char*, const char*>, 36> kOtherNames = {{
    {"filters", "out_channels"},
    {"num_output", "out_channels"},
    {"num_output", "out_features"},
    {"units", "out_features"},
    {"strides", "stride"},
    {"pad", "padding"},
    {"pool_size", "kernel_size"},
    {"group", "groups"},
    {"dilation_rate", "dilation"},
    {"use_bias", "bias"},
    {"learning_rate", "lr"},
    {"base_lr", "lr"},
    {"decay", "weight_decay"},
    {"max_epochs", "epochs"},
    {"num_epochs", "epochs"},
    {"shared_weights", "share_weights"},
    {"tie_weights", "share_weights"},
    {"bottom", "from"},
    {"inputs", "from"},
    {"num_workers", "workers"},
    {"path", "root"},
    {"path", "file"},
    {"pretrained", "weights"},
    {"finetune", "weights"},
    {"init_from", "weights"},
    {"prefix", "map"},
    {"swa_start", "from_epoch"},
    {"start_epoch", "from_epoch"},
    {"random_seed", "seed"},
    {"scheduler", "lr_schedule"},
    {"gpus", "devices"},
    {"validation", "val"},
    {"valid", "val"},
    {"test", "eval"},
    {"val", "eval"},
    {"validation", "eval"},
}};

std::string join_path(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

void collect_paths(const std::vector<Field>& fields, const std::string& key,
                   const std::string& path, std::vector<std::string>& found) {
  for (const Field& field : fields) {
    const std::string here = join_path(path, field.name);
    if (field.name == key) found.push_back(here);
    const ObjectTable* object = field.type == FieldType::object ? field.object : nullptr;
    if (object) {
      collect_paths(object->fields, key, here, found);
      if (object->choice.variants && object->choice.variants->tag == key) {
        found.push_back(join_path(here, key));
      }
    }
    const VariantTable* kinds = field.type == FieldType::variant ? field.variants : nullptr;
    if (object && object->choice.variants) kinds = object->choice.variants;
    if (!kinds) continue;
    for (const ObjectTable* kind : kinds->alternatives) {
      collect_paths(kind->fields, key, here, found);
    }
  }
}

}  // namespace

std::string other_name(const std::string& key, const std::vector<std::string>& known) {
  for (const auto& [theirs, ours] : kOtherNames) {
    if (key == theirs && std::find(known.begin(), known.end(), ours) != known.end()) return ours;
  }
  return {};
}

std::vector<std::string> kinds_with(const VariantTable* kinds, const std::string& key) {
  std::vector<std::string> found;
  if (!kinds) return found;
  for (const ObjectTable* kind : kinds->alternatives) {
    const auto is_key = [&](const Field& field) { return field.name == key; };
    if (std::any_of(kind->fields.begin(), kind->fields.end(), is_key)) found.push_back(kind->name);
  }
  return found;
}

std::string fraction_of(const Field& field, const YamlNode& node) {
  const std::vector<Field>& all = field.object->fields;
  const auto is_fraction = [](const Field& each) { return each.name == "fraction"; };
  if (node.kind != YamlNode::Kind::scalar || !std::any_of(all.begin(), all.end(), is_fraction)) {
    return {};
  }
  YamlNode number = node;
  const bool is_percentage = number.text.ends_with('%');
  if (is_percentage) number.text.pop_back();
  while (number.text.ends_with(' ')) number.text.pop_back();
  const std::optional<double> value = read_number(number).value;
  if (!value || *value <= 0) return {};
  const double share = is_percentage ? *value / 100 : *value;
  return share < 1 ? fmt::format("{:.6g}", share) : std::string();
}

std::string longer_name(const std::string& key, const std::vector<std::string>& known) {
  for (const std::string& name : known) {
    if (key.size() >= 3 && name.starts_with(key + "_")) return name;
  }
  return {};
}

std::string decimal_comma(const YamlNode& map, const YamlNode& child) {
  const bool is_digits =
      !child.key.empty() && child.key.find_first_not_of("0123456789") == std::string::npos;
  if (!is_digits || child.kind != YamlNode::Kind::null || &child == map.children.data()) return {};
  const YamlNode& before = *(&child - 1);
  if (!read_integer(before).value) return {};
  return fmt::format("{}: {}.{}", before.key, before.text, child.key);
}

std::string elsewhere(const ObjectTable& root, const std::string& key) {
  std::vector<std::string> found;
  collect_paths(root.fields, key, {}, found);
  if (found.empty()) {
    for (const auto& [theirs, ours] : kOtherNames) {
      if (key != theirs) continue;
      const auto is_ours = [&name = ours](const Field& field) { return field.name == name; };
      // Prefer a section of that name to a key deep in another one.
      if (std::any_of(root.fields.begin(), root.fields.end(), is_ours)) {
        found = {ours};
        break;
      }
      collect_paths(root.fields, ours, {}, found);
    }
  }
  if (found.empty()) return {};
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  if (found.size() > 3) return {};
  if (found.size() == 1 && found[0].find('.') == std::string::npos) {
    return fmt::format("'{}' at the top level, not in a section", found[0]);
  }
  return fmt::format("'{}'", fmt::join(found, "' or '"));
}

}  // namespace dpt
