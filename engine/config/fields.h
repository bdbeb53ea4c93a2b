// Field tables: one row per config field.
//
// A struct of options has one ObjectTable. Each row says name, type, default, range and one line
// of documentation; the parser, the error texts, the suggestions, `dpt config show`, the JSON
// Schema and docs/reference/config.md are all generated from these rows. A struct's defaults are
// its member initialisers: the table never repeats them.
//
//   struct ReluOptions {};
//   struct Conv2dOptions { std::int64_t out_channels = 0; bool bias = true; };
//
//   const ObjectTable& conv2d_table() {
//     static const ObjectTable table = object_table<Conv2dOptions>(
//         "Conv2d", "2-D convolution.",
//         {field("out_channels", &Conv2dOptions::out_channels, "Output channels.")
//              .required()
//              .range(1, 65536),
//          field("bias", &Conv2dOptions::bias, "Add a learnable bias.")});
//     return table;
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/base/enum_names.h"
#include "kernels/base/error.h"
#include "kernels/base/types.h"

namespace dpt {

struct ObjectTable;
struct VariantTable;

/// A chosen `{type: NAME, ...}` with its options. Immutable and cheap to copy.
struct Variant {
  std::string type;
  Where where;  ///< place of the mapping in the YAML file
  const ObjectTable* table = nullptr;
  std::shared_ptr<const void> options;

  /// Returns the options struct; T must be the struct of the table.
  template <class T>
  const T& as() const {
    return *static_cast<const T*>(options.get());
  }
};

/// Type of a field. The reader converts a YAML node to exactly this type, or reports what it
/// expected.
enum class FieldType : std::uint8_t {
  boolean,   ///< bool
  integer,   ///< std::int64_t
  number,    ///< double
  string,    ///< std::string
  choice,    ///< an enum with enum_names; its PlainValue is the name of the enumerator
  path,      ///< std::string; ${VAR:-default} expanded, relative to the config file
  size2,     ///< Size2: an integer or [height, width]
  numbers,   ///< std::vector<double>
  integers,  ///< std::vector<std::int64_t>
  strings,   ///< std::vector<std::string>: a string or a list of strings
  texts,     ///< TextPairs: a mapping from strings to strings
  object,    ///< a nested struct with its own table
  objects,   ///< a list of structs that share a table
  variant,   ///< Variant chosen by `type` from a VariantTable
  variants,  ///< std::vector<Variant>
  patch      ///< no member: changes to another field, applied before that is read (patch.h)
};

/// A mapping from strings to strings, in the order in which it is written.
using TextPairs = std::vector<std::pair<std::string, std::string>>;

/// A value as JSON-like data, for defaults, `config show` and schemas.
using PlainValue = std::variant<std::monostate, bool, std::int64_t, double, std::string, Size2,
                                std::vector<double>, std::vector<std::int64_t>,
                                std::vector<std::string>, TextPairs>;

/// Value of a Size2 that the config gives as a word (Field::or_word).
inline constexpr Size2 kWordSize{-1, -1};

struct Field {
  std::string name;
  FieldType type = FieldType::boolean;
  std::string doc;
  bool is_required = false;
  bool is_optional = false;  ///< std::optional member: null or absent = not set
  std::optional<double> min, max;
  bool min_is_exclusive = false;
  std::optional<std::size_t> min_items, max_items;  ///< lists only
  bool one_is_list = false;  ///< list of numbers: a single number stands for a list of one
  std::string zero_word;   ///< word for 0 ("auto") of an integer, or for the empty list of numbers
  std::string path_word;   ///< for a path: a word that is allowed instead and kept unchanged
  bool takes_url = false;  ///< for a path: the name of a file on a server is allowed instead
  std::string size_word;   ///< for a size2: a word that is allowed instead and means -1, -1
  std::vector<std::string> choices;  ///< FieldType::choice
  bool not_of_blocks = false;        ///< field that layers have and blocks do not
  bool is_of_labels = false;         ///< required only where the labels of samples are needed
  bool data_gives = false;     ///< required, unless a network of the zoo takes it from the data set
  bool is_changeable = false;  ///< a resumed run may change it and all fields below it
  std::string former_name;     ///< earlier name in configs; empty = never renamed
  /// Value in configs that dpt stored before the field existed; unset = the member's default.
  std::optional<PlainValue> stored_default;
  std::string plain_key;  ///< object: the field set by a plain value in place of the mapping
  std::string leader;     ///< the field that determines the default; empty = none
  std::function<PlainValue(const void*)> follow;  ///< computes the default; null = the initialiser
  const ObjectTable* object = nullptr;            ///< FieldType::object(s)
  const VariantTable* variants = nullptr;         ///< FieldType::variant(s)

  /// Access to the member of a struct, type-erased.
  std::function<PlainValue(const void*)> get;
  std::function<void(void*, const PlainValue&)> set;
  std::function<void*(void*)> nested;  ///< object: its address (engages a std::optional); else null
  std::function<const void*(const void*)> nested_const;  ///< null pointer when an optional is unset
  std::function<std::vector<Variant>*(void*)> list;      ///< variants
  std::function<Variant*(void*)> one;                    ///< variant
  std::function<void*(void*)> append;  ///< objects: adds one and returns its address
  std::function<std::vector<const void*>(const void*)> elements;  ///< objects

  // Builder calls; each returns the field.
  Field required() &&;
  /// Makes the field required, except for samples to be predicted, which need no labels.
  Field required_of_labels() &&;
  /// Makes the field required, unless a network of the zoo can take it from known DataFacts.
  Field given_by_data() &&;
  Field range(double low, double high) &&;
  Field at_least(double low) &&;
  Field above(double low) &&;  ///< exclusive lower bound
  /// Restricts an enum to these values.
  template <class E>
  Field only(std::initializer_list<E> values) &&;
  /// Lets a resumed run change the field: the result of the steps done so far does not depend on
  /// it.
  Field changeable() &&;
  /// Sets the field's name in older configs. A config that uses it gets an error with the new name;
  /// one stored in a checkpoint is read as if it had the new name.
  Field formerly(std::string name) &&;
  /// Sets the value for stored configs that lack the field because they are older. Meant for fields
  /// that change results: a resumed run whose config does not set the field keeps the run's value.
  Field stored_as(PlainValue value) &&;
  /// Sets the default to make(struct), which depends on the field `leader`.
  template <class S, class T>
  Field follows(std::string leader, T (*make)(const S&)) &&;
  Field items(std::size_t low, std::size_t high) &&;  ///< limits of a list's length
  /// Allows one number or integer without brackets in place of a list of one.
  Field or_one() &&;
  /// Makes `word` stand for 0, or for the empty list if the field is a list of numbers; range and
  /// items limit all other values.
  Field zero_as(std::string word) &&;
  /// Allows a plain value in place of an object's mapping; the value sets the field `key`.
  Field or_plain(std::string key) &&;
  /// Allows a path to be the name of a file on a server (is_remote) or `word`. Both stay unchanged.
  Field or_remote(std::string word) &&;
  /// Allows `word` in place of a Size2; the word sets it to {-1, -1}.
  Field or_word(std::string word) &&;
};

/// A Variant member whose tag and fields are keys in the mapping of the enclosing struct
/// (`data: {dataset: mnist, root: ..., batch_size: ...}`).
struct FlatChoice {
  const VariantTable* variants = nullptr;  ///< null = no such member
  std::function<Variant*(void*)> at;
  std::string default_type;  ///< kind if the tag is absent; empty = the tag is required
  /// Field that the config sets if the tag is absent; otherwise the chosen kind creates it. Empty =
  /// none.
  std::string makes;
};

/// All fields of one struct.
struct ObjectTable {
  std::string name;  ///< name in configs: "Conv2d", "train"
  std::string doc;
  std::vector<Field> fields;
  std::function<std::shared_ptr<void>()> make;  ///< a struct with its defaults
  /// Checks the fields together, after all of them were read. Returns the message, or empty.
  std::function<std::string(const void*)> check;
  /// Checks, in the same way, the fields that only labels need. Runs before `check`, and only if
  /// labels are needed.
  std::function<std::string(const void*)> check_labels;
  FlatChoice choice;
  bool is_activation = false;  ///< layer: elementwise, so a Residual may end with it
  bool is_block = false;       ///< layer: stands for other layers
  int least_inputs = 1;        ///< layer: minimum number of inputs; above 1, `from` must name them
  /// Stores the place of the mapping in the struct; null if the struct has no member for it.
  std::function<void(void*, const Where&)> set_where;
};

/// The alternatives of a `{type: ...}` field. With a `tag` other than "type", the key of that name
/// chooses the alternative (`data: {dataset: mnist, ...}`).
struct VariantTable {
  std::string what;  ///< "layer", "optimizer": for messages
  std::string tag = "type";
  std::vector<const ObjectTable*> alternatives;
  /// Names in other systems -> names in dpt ("Conv2D" -> "Conv2d").
  std::vector<std::pair<std::string, std::string>> hints;
};

// Builders: `field(name, &Struct::member, doc)` deduces the FieldType from the member's type: bool,
// std::int64_t, double, std::string, an enum with enum_names, Size2, a vector of double,
// std::int64_t or std::string, TextPairs, or a std::optional of one of these. Paths are changeable,
// because the place of a file changes no result: the data is compared by its fingerprint.
template <class S, class T>
Field field(const char* name, T S::*member, const char* doc);
template <class S>
Field path_field(const char* name, std::string S::*member, const char* doc);
template <class S, class T>
Field object_field(const char* name, T S::*member, const ObjectTable& table, const char* doc);
template <class S, class T>
Field objects_field(const char* name, std::vector<T> S::*member, const ObjectTable& table,
                    const char* doc);
template <class S>
Field variant_field(const char* name, Variant S::*member, const VariantTable& table,
                    const char* doc);
template <class S>
Field variants_field(const char* name, std::vector<Variant> S::*member, const VariantTable& table,
                     const char* doc);
template <class S>
ObjectTable object_table(const char* name, const char* doc, std::initializer_list<Field> fields,
                         std::string (*check)(const S&) = nullptr);

/// Marks the table of an elementwise layer, which may end a Residual.
inline ObjectTable activation_table(ObjectTable table) {
  table.is_activation = true;
  return table;
}

/// Marks the table of a layer that has several inputs.
inline ObjectTable joining_table(ObjectTable table) {
  table.least_inputs = 2;
  return table;
}
/// Marks the table of a block.
inline ObjectTable block_table(ObjectTable table) {
  table.is_block = true;
  return table;
}

/// Returns the field named by `Field::plain_key`.
const Field& plain_field(const Field& object);

}  // namespace dpt

#include "engine/config/fields_inl.h"
