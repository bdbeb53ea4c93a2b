// Converts a YAML tree into structs as the field tables describe. Collects every problem instead of
// stopping at the first.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/config/issue.h"
#include "engine/config/spec_tables.h"
#include "engine/config/values.h"
#include "engine/config/yaml_tree.h"

namespace dpt {

/// Need for the fields that locate the labels of the samples.
enum class Labels : std::uint8_t { needed, not_needed };

class Binder {
 public:
  /// `root` is the table whose fields are searched for a misplaced key. `author` is the author of
  /// `file`; everything merged from elsewhere counts as the user's.
  Binder(const ObjectTable& root, const std::string& file, std::vector<ConfigIssue>& issues,
         std::map<std::string, Where>& origins, Labels labels = Labels::needed,
         Author author = Author::user);

  /// Fills `target` from a mapping. `path` is its dotted path ("" for the root).
  void read_object(const ObjectTable& table, void* target, const YamlNode& node,
                   const std::string& path);

 private:
  /// The fields that a mapping may contain, and its name in messages.
  struct Scope {
    std::string owner;               ///< "layer Conv2d", "train", "the config"
    std::vector<std::string> names;  ///< every known key, the tag first
    bool is_complete = true;  ///< false if the kind is unknown, so that keys cannot be judged
    std::vector<std::string> meant;  ///< suggested for unknown keys, so not reported as missing
    std::map<std::string, std::string> renamed;  ///< former names of keys -> present names

    void add(const std::vector<Field>& fields);
  };

  void issue(const Where& where, std::string text);
  bool is_required(const Field& field) const;
  void run_checks(const ObjectTable& table, const void* target, const YamlNode& node,
                  const std::string& path, const std::string& owner);
  void refuse_plain(const ObjectTable& table, const YamlNode& node, const Scope& scope);
  void read_fields(const std::vector<Field>& fields, void* target, const YamlNode& node,
                   const std::string& path, const Scope& scope);
  void read_field(const Field& field, void* target, const YamlNode& node, const std::string& path);
  void read_known(const Field& field, void* target, const YamlNode& node, const std::string& path);
  void read_plain(const Field& field, void* target, const YamlNode& node, const std::string& path);
  void read_value(const Field& field, void* target, const YamlNode& node, const std::string& path);
  void read_variant(const VariantTable& table, Variant& target, const YamlNode& node,
                    const std::string& path);
  const ObjectTable* choose(const VariantTable& table, const std::string& default_type,
                            const YamlNode& node, const std::string& path);
  void read_options(const ObjectTable& table, Variant& target, const YamlNode& node,
                    const std::string& path, const Scope& scope);
  void report_unknown_keys(const YamlNode& node, Scope& scope, const VariantTable* kinds);
  void fill_defaults(const std::vector<Field>& fields, void* target);

  const ObjectTable& root_;
  std::string file_;
  std::vector<ConfigIssue>& issues_;
  std::map<std::string, Where>& origins_;
  Labels labels_;
  Author author_;
};

}  // namespace dpt
