// Generates docs/reference/config.md from the field tables.
#include "engine/config/reference.h"

#include <map>
#include <set>

#include "engine/config/scalars.h"
#include "engine/config/spec_tables.h"
#include "engine/config/values.h"

namespace dpt {
namespace {

constexpr const char* kHead = R"(# Config reference

This page is generated from the field tables (`dpt config reference > docs/reference/config.md`); a test checks
that it is up to date.

- Reading is strict: an unknown or duplicate key, a wrong type and a value out of range are errors. One run reports
  all errors of a file, as `file:line:column: ...`.
- `extends: base.yaml` extends another config. Mappings are merged; lists and other values replace those of the
  base. If a mapping names a kind (`type`, `dataset`) other than the base's, the fields of the base's kind are dropped.
- `model: {zoo: NAME, ...}` stands for the layers of a network of the zoo, which `dpt config show --expand`
  prints. `model.patch` changes individual layers, by name, of the config that is extended or of the network of the zoo.
- `path.to.field=value` after the config on the command line overrides a value. The new value is read as YAML. List
  items are addressed by name or index (`model.layers.conv1.out_channels=32`), layers in blocks also by
  their full names (`model.layers.layer1.0.conv1.bias=false`).
- Blocks (`Sequential`, `Residual`) hold layers and other blocks; `repeat` makes copies of a block. The layers of a
  block NAME are called NAME.CHILD, those of its copies NAME.0.CHILD, NAME.1.CHILD, ...; `from` looks for a name in the
  same block first. `dpt config show --expand` prints the layers that the blocks of a config stand for.
- A path may contain `${NAME}` or `${NAME:-default}` from the environment, where the default may contain
  variables too; `$${` gives a literal `${`. In any other value `${` is an error. A leading `~/` is the home folder.
  A relative path is relative to the config file that contains it; on the command line, to the
  working directory.
- A variable is secret if `token`, `password`, `secret` or `key` is a word of its name (`S3_SECRET`). Stored configs,
  the log and messages contain `${S3_SECRET}` instead of its value.
- `true` and `false` are the only booleans; numbers are decimal without leading zeros; a string that
  looks like a number needs quotes. Aliases are supported; merge keys (`<<`), tags and several documents in
  one file are not.
)";

std::string escaped(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) {
    text.insert(at, "\\");
  }
  return text;
}

std::string number(double value) {
  return number_text(value);
}

template <class T>
std::string joined(const std::vector<T>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

struct DefaultText {
  const Field& field;

  std::string operator()(std::monostate) const { return "not set"; }
  std::string operator()(bool value) const { return value ? "`true`" : "`false`"; }
  std::string operator()(std::int64_t value) const {
    if (value == 0 && !field.zero_word.empty()) return "`" + field.zero_word + "`";
    return fmt::format("`{}`", value);
  }
  std::string operator()(double value) const { return "`" + number(value) + "`"; }
  std::string operator()(const std::string& value) const {
    return value.empty() ? "" : "`" + value + "`";
  }
  std::string operator()(const Size2& value) const {
    if (value.h == value.w) return fmt::format("`{}`", value.h);
    return fmt::format("`[{}, {}]`", value.h, value.w);
  }
  std::string operator()(const TextPairs&) const { return ""; }
  template <class T>
  std::string operator()(const std::vector<T>& value) const {
    if (value.empty()) return field.zero_word.empty() ? "" : "`" + field.zero_word + "`";
    return "`" + joined(value) + "`";
  }
};

class Page {
 public:
  explicit Page(const SpecTables& tables) : tables_(tables) {}

  std::string make() {
    out_ = kHead;
    TrainSpec defaults;
    section("The file", tables_.root, &defaults, 2);
    return std::move(out_);
  }

 private:
  static std::string anchor(const std::string& title) {
    std::string out;
    for (const char c : title) {
      if (c >= 'A' && c <= 'Z') {
        out += static_cast<char>(c + 32);
      } else if (c == ' ') {
        out += '-';
      } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-') {
        out += c;
      }
    }
    return out;
  }

  static std::string type_text(const Field& field) {
    switch (field.type) {
      case FieldType::object:
        return fmt::format(
            "{}[mapping](#{})",
            field.plain_key.empty() ? "" : expected_text(plain_field(field)) + ", or a ",
            anchor(field.object->name));
      case FieldType::objects:
        // `groups` is already a plural.
        return fmt::format("list of [{}{}](#{})", field.object->name,
                           field.object->name.ends_with('s') ? "" : "s",
                           anchor(field.object->name));
      case FieldType::variant:
        return fmt::format("[{}](#{})", field.variants->what, anchor(field.variants->what));
      case FieldType::variants:
        return fmt::format("list of [{}s](#{})", field.variants->what,
                           anchor(field.variants->what));
      default:
        return expected_text(field) + (field.is_optional ? ", or null" : "");
    }
  }

  static std::string default_text(const Field& field, void* owner) {
    if (field.data_gives) return "required, or the data set's";
    if (field.is_required) return "required";
    if (field.follow) return fmt::format("follows `{}`", field.leader);
    if (!field.plain_key.empty() && !field.is_optional) {
      // Show the default itself, not the field that it follows.
      Field plain = plain_field(field);
      plain.follow = nullptr;
      return default_text(plain, field.nested(owner));
    }
    if (field.get) return std::visit(DefaultText{field}, field.get(owner));
    return field.is_optional ? "not set" : "";
  }

  void head() { out_ += "\n| key | value | default | |\n|---|---|---|---|\n"; }

  void rows(const std::vector<Field>& fields, void* owner, const FlatChoice& choice = {}) {
    for (const Field& field : fields) {
      out_ += fmt::format("| `{}` | {} | {} | {} |\n", field.name, escaped(type_text(field)),
                          escaped(field.name == choice.makes
                                      ? fmt::format("required without `{}`", choice.variants->tag)
                                      : default_text(field, owner)),
                          escaped(field.doc));
    }
  }

  void heading(const std::string& title, const std::string& doc, int level) {
    out_ += fmt::format("\n{} {}\n\n{}\n", std::string(static_cast<std::size_t>(level), '#'), title,
                        doc);
  }

  void section(const std::string& title, const ObjectTable& table, void* object, int level) {
    heading(title, table.doc, level);
    head();
    if (&table == &tables_.root) {
      out_ += fmt::format("| `{}` | a path |  | {} |\n", kExtendsKey, kExtendsDoc);
    }
    const VariantTable* variants = table.choice.variants;
    if (variants && !variants->alternatives.empty()) {
      std::vector<std::string> names;
      for (const ObjectTable* kind : variants->alternatives) names.push_back(kind->name);
      const std::string& preset = table.choice.default_type;
      out_ += fmt::format(
          "| `{}` | one of {} | {} | The kind; its fields are given at the same level. |\n",
          variants->tag, fmt::join(names, ", "),
          !table.choice.makes.empty() ? ""
          : preset.empty()            ? "required"
                                      : "`" + preset + "`");
    }
    rows(table.fields, object, table.choice);
    if (table.choice.variants) kinds(*table.choice.variants, level + 1);
    nested(table.fields, object, level);
  }

  void nested(const std::vector<Field>& fields, void* object, int level) {
    const int next = level == 2 && &fields == &tables_.root.fields ? 2 : level + 1;
    for (const Field& field : fields) {
      if (field.type == FieldType::object && is_new(field.object)) {
        section(field.object->name, *field.object, field.nested(object), next);
      } else if (field.type == FieldType::objects && is_new(field.object)) {
        section(field.object->name, *field.object, field.append(object), next);
      } else if ((field.type == FieldType::variant || field.type == FieldType::variants) &&
                 is_new(field.variants)) {
        heading(field.variants->what, fmt::format("Chosen by `{}`.", field.variants->tag), next);
        kinds(*field.variants, next + 1);
      }
    }
  }

  void kinds(const VariantTable& table, int level) {
    for (const ObjectTable* kind : table.alternatives) {
      heading(fmt::format("`{}: {}`", table.tag, kind->name), kind->doc, level);
      const std::shared_ptr<void> options = kind->make();
      if (!kind->fields.empty()) {
        head();
        rows(kind->fields, options.get());
      }
      nested(kind->fields, options.get(), level);
    }
  }

  bool is_new(const void* table) { return done_.insert(table).second; }

  const SpecTables& tables_;
  std::string out_;
  std::set<const void*> done_;
};

}  // namespace

std::string config_reference(const Catalog& catalog) {
  const SpecTables tables(catalog);
  return Page(tables).make();
}

}  // namespace dpt
