// Lists, from the field tables, the paths that `KEY=VALUE` on a command line can set.
#include "engine/config/config_paths.h"

#include <map>
#include <set>

#include "engine/config/spec_tables.h"

namespace dpt {
namespace {

class PathWalk {
 public:
  void object(const ObjectTable& table, const std::string& prefix) {
    for (const Field& field : table.fields) one(field, prefix + field.name);
    if (table.choice.variants) kinds(*table.choice.variants, prefix);
  }

  std::vector<ConfigPath> paths() const {
    std::vector<ConfigPath> all;
    for (const auto& [path, words] : words_) all.push_back({path, {words.begin(), words.end()}});
    return all;
  }

 private:
  void one(const Field& field, const std::string& path) {
    switch (field.type) {
      case FieldType::object:
        return object(*field.object, path + ".");
      case FieldType::variant:
        return kinds(*field.variants, path + ".");
      case FieldType::objects:
      case FieldType::variants:
      case FieldType::patch:
        return;
      case FieldType::boolean:
        words_[path].insert({"true", "false"});
        return;
      default: {
        std::set<std::string>& words = words_[path];
        words.insert(field.choices.begin(), field.choices.end());
        for (const std::string& word : {field.zero_word, field.size_word, field.path_word}) {
          if (!word.empty()) words.insert(word);
        }
      }
    }
  }

  void kinds(const VariantTable& table, const std::string& prefix) {
    if (table.alternatives.empty()) return;
    for (const ObjectTable* kind : table.alternatives) {
      words_[prefix + table.tag].insert(kind->name);
      object(*kind, prefix);
    }
  }

  std::map<std::string, std::set<std::string>> words_;
};

}  // namespace

std::vector<ConfigPath> config_paths(const Catalog& catalog) {
  const SpecTables tables(catalog);
  PathWalk walk;
  walk.object(tables.root, "");
  return walk.paths();
}

}  // namespace dpt
