#include "engine/config/show_spec.h"

#include <algorithm>
#include <tuple>

#include "engine/config/paths.h"
#include "engine/config/scalars.h"
#include "engine/config/secrets.h"
#include "engine/config/spec_tables.h"
#include "engine/config/stored_paths.h"

namespace dpt {
namespace {

template <class T, class ToText>
std::string yaml_list(const std::vector<T>& list, ToText to_text) {
  std::vector<std::string> texts;
  for (const T& element : list) texts.push_back(to_text(element));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::string yaml_number(double value) {
  return fmt::format("{}", value);
}
std::string yaml_integer(std::int64_t value) {
  return fmt::format("{}", value);
}

struct ToYaml {
  const Field& field;

  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const {
    return value == 0 && !field.zero_word.empty() ? field.zero_word : yaml_integer(value);
  }
  std::string operator()(double value) const { return yaml_number(value); }
  std::string operator()(const std::string& value) const {
    return yaml_string(field.type == FieldType::path ? stored_path(value)
                                                     : escape_variables(value));
  }
  std::string operator()(const Size2& value) const {
    if (!field.size_word.empty() && value == kWordSize) return field.size_word;
    if (value.h == value.w) return yaml_integer(value.h);
    return fmt::format("[{}, {}]", value.h, value.w);
  }
  std::string operator()(const std::vector<double>& value) const {
    if (value.empty() && !field.zero_word.empty()) return field.zero_word;
    return yaml_list(value, yaml_number);
  }
  std::string operator()(const std::vector<std::int64_t>& value) const {
    return yaml_list(value, yaml_integer);
  }
  std::string operator()(const std::vector<std::string>& value) const {
    return yaml_list(value,
                     [](const std::string& text) { return yaml_string(escape_variables(text)); });
  }
  std::string operator()(const TextPairs& value) const {
    std::vector<std::string> texts;
    for (const auto& [key, text] : value) {
      texts.push_back(yaml_string(key) + ": " + yaml_string(escape_variables(text)));
    }
    return fmt::format("{{{}}}", fmt::join(texts, ", "));
  }
};

class Writer {
 public:
  Writer(const TrainSpec& spec, bool with_origins) : spec_(spec), with_origins_(with_origins) {}

  void object(const ObjectTable& table, const void* object, const std::string& path) {
    if (!table.choice.variants) {
      fields(table.fields, object, path);
      return;
    }
    // Write the keys in the usual order: the kind, the name if any, the fields of the kind, then
    // the common ones. The const_cast is safe: the tables give write access only, but nothing is
    // written here.
    const Variant& chosen = *table.choice.at(const_cast<void*>(object));
    if (chosen.type.empty()) {
      fields(table.fields, object, path);
      return;
    }
    std::vector<Field> names, others;
    for (const Field& field : table.fields) {
      if (field.name == table.choice.makes) continue;
      const bool is_name = field.type == FieldType::string || field.type == FieldType::strings;
      (is_name ? names : others).push_back(field);
    }
    line(table.choice.variants->tag + ": " + yaml_string(chosen.type),
         path + "." + table.choice.variants->tag);
    fields(names, object, path);
    // Find the table by name, because a Variant of a block does not keep its table.
    for (const ObjectTable* kind : table.choice.variants->alternatives) {
      if (kind->name == chosen.type) fields(kind->fields, chosen.options.get(), path);
    }
    fields(others, object, path);
  }

  std::string finish() {
    std::string out;
    std::size_t widest = 0;
    for (const Line& line : lines_)
      widest = std::max(widest, std::min<std::size_t>(line.text.size(), 60));
    for (const Line& line : lines_) {
      out += line.text;
      if (!line.origin.empty()) {
        out.append(std::max(widest, line.text.size()) - line.text.size() + 2, ' ');
        out += "# " + line.origin;
      }
      out += '\n';
    }
    return out;
  }

 private:
  struct Line {
    std::string text;
    std::string origin;
  };

  void fields(const std::vector<Field>& all, const void* object, const std::string& path) {
    for (const Field& field : all) {
      const std::string here = path.empty() ? field.name : path + "." + field.name;
      write(field, object, here);
    }
  }

  void write(const Field& field, const void* object, const std::string& path) {
    switch (field.type) {
      case FieldType::object: {
        const void* nested = field.nested_const(object);
        if (!nested) {
          line(field.name + ": null", path);
          return;
        }
        // Write an optional mapping as a mapping, because stored configs are compared key by key.
        if (!field.plain_key.empty() && !field.is_optional && is_plain(field, nested)) {
          const Field& plain = plain_field(field);
          const PlainValue value = plain.get(nested);
          const auto* strings = std::get_if<std::vector<std::string>>(&value);
          if (strings && strings->empty()) return;  // equal to an absent list
          line(field.name + ": " + std::visit(ToYaml{plain}, value), path);
          return;
        }
        open(field.name);
        this->object(*field.object, nested, path);
        close(": {}");
        return;
      }
      case FieldType::objects: {
        open(field.name);
        const std::vector<const void*> elements = field.elements(object);
        for (std::size_t i = 0; i < elements.size(); ++i) {
          next_item_ = true;
          ++depth_;
          this->object(*field.object, elements[i], fmt::format("{}.{}", path, i));
          --depth_;
        }
        close(": []");
        return;
      }
      case FieldType::variant: {
        const Variant& chosen = *field.one(const_cast<void*>(object));
        if (!chosen.table) return;
        open(field.name);
        variant(*field.variants, chosen, path);
        close(": {}");
        return;
      }
      case FieldType::variants: {
        open(field.name);
        const std::vector<Variant>& all = *field.list(const_cast<void*>(object));
        for (std::size_t i = 0; i < all.size(); ++i) {
          next_item_ = true;
          ++depth_;
          variant(*field.variants, all[i], fmt::format("{}.{}", path, i));
          --depth_;
        }
        close(": []");
        return;
      }
      case FieldType::patch:
        return;
      default:
        break;
    }
    const PlainValue value = field.get(object);
    // An absent list equals an empty one, and most layers have no `from`.
    const auto* strings = std::get_if<std::vector<std::string>>(&value);
    if (strings && strings->empty() && !field.is_required) return;
    const auto* texts = std::get_if<TextPairs>(&value);
    if (texts && texts->empty()) return;
    // Leave out names that were not given.
    const auto* string = std::get_if<std::string>(&value);
    if (string && string->empty() && field.type == FieldType::string) return;
    line(field.name + ": " + std::visit(ToYaml{field}, value), path);
  }

  /// Returns true if all fields have their defaults, apart from the one that a plain value sets.
  static bool is_plain(const Field& field, const void* object) {
    const std::shared_ptr<void> defaults = field.object->make();
    const std::vector<Field>& all = field.object->fields;
    return std::all_of(all.begin(), all.end(), [&](const Field& each) {
      return each.name == field.plain_key || each.get(object) == each.get(defaults.get());
    });
  }

  void variant(const VariantTable& table, const Variant& chosen, const std::string& path) {
    line(table.tag + ": " + yaml_string(chosen.type), path + "." + table.tag);
    if (chosen.table) fields(chosen.table->fields, chosen.options.get(), path);
  }

  /// Writes a key whose value is a mapping or list. If nothing follows, `close` writes its argument
  /// as the value.
  void open(const std::string& key) {
    opened_.push_back(lines_.size());
    lines_.push_back({indent() + key, {}});
    ++depth_;
  }
  void close(const char* empty) {
    --depth_;
    const std::size_t at = opened_.back();
    opened_.pop_back();
    lines_[at].text += at + 1 == lines_.size() ? empty : ":";
  }

  std::string indent() {
    std::string out(static_cast<std::size_t>(depth_) * 2, ' ');
    if (next_item_) out.replace(out.size() - 2, 2, "- ");
    next_item_ = false;
    return out;
  }

  void line(const std::string& text, const std::string& path) {
    lines_.push_back({indent() + text, with_origins_ ? origin(path) : std::string{}});
  }

  std::string origin(const std::string& path) const {
    const auto found = spec_.origins.find(path);
    if (found == spec_.origins.end()) return "default";
    const std::string file = hide_secrets(found->second.file);
    return found->second.line == 0 ? file : fmt::format("{}:{}", file, found->second.line);
  }

  const TrainSpec& spec_;
  bool with_origins_;
  std::vector<Line> lines_;
  std::vector<std::size_t> opened_;
  int depth_ = 0;
  bool next_item_ = false;
};

}  // namespace

std::string show_spec(const Catalog& catalog, const TrainSpec& spec, bool origins) {
  const SpecTables tables(catalog);
  Writer writer(spec, origins);
  writer.object(tables.root, &spec, "");
  return writer.finish();
}

TrainSpec with_explicit_layers(const TrainSpec& spec) {
  TrainSpec out = spec;
  out.model.zoo = {};
  out.model.written = spec.model.layers;
  std::erase_if(out.origins,
                [](const auto& origin) { return origin.first.starts_with("model.layers."); });
  for (std::size_t i = 0; i < out.model.written.size(); ++i) {
    LayerSpec& layer = out.model.written[i];
    const std::string from = layer.path + ".", to = fmt::format("model.layers.{}.", i);
    for (auto origin = spec.origins.lower_bound(from);
         !layer.path.empty() && origin != spec.origins.end() && origin->first.starts_with(from);
         ++origin) {
      out.origins[to + origin->first.substr(from.size())] = origin->second;
    }
    layer.path = fmt::format("model.layers.{}", i);
  }
  return out;
}

}  // namespace dpt
