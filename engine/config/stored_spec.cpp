#include "engine/config/stored_spec.h"

#include <algorithm>
#include <map>

#include "engine/config/flat_values.h"
#include "engine/config/read_spec.h"
#include "engine/config/show_spec.h"
#include "engine/config/spec_tables.h"

namespace dpt {
namespace {

/// Appends the paths of the wanted fields. Skips the fields below a wanted one, because its path
/// covers them.
void collect_paths(const std::vector<Field>& fields, bool (*is_wanted)(const Field&),
                   const std::string& prefix, std::vector<std::string>& paths) {
  const auto collect_kinds = [&](const VariantTable& kinds, const std::string& path) {
    for (const ObjectTable* kind : kinds.alternatives) {
      collect_paths(kind->fields, is_wanted, path + ".", paths);
    }
  };
  for (const Field& field : fields) {
    const std::string path = prefix + field.name;
    if (is_wanted(field)) {
      if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
    } else if (field.type == FieldType::object) {
      collect_paths(field.object->fields, is_wanted, path + ".", paths);
      if (field.object->choice.variants) collect_kinds(*field.object->choice.variants, path);
    } else if (field.type == FieldType::variant) {
      collect_kinds(*field.variants, path);
    }
  }
}

}  // namespace

std::string show_to_compare(const Catalog& catalog, const TrainSpec& spec) {
  TrainSpec out = with_explicit_layers(spec);
  std::vector<LayerSpec>& layers = out.model.written;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].from.empty()) layers[i].from = {i == 0 ? "input" : layers[i - 1].name};
  }
  // A warm-up without a length has no effect, whatever the defaults of its other fields were.
  if (out.warmup.epochs == 0 && out.warmup.steps == 0) out.warmup = {};
  // Treat measured numbers as given ones.
  NormalizeSpec& normalize = out.data.normalize;
  if (normalize.has_numbers()) normalize.mode = NormalizeMode::given;
  return show_spec(catalog, out);
}

std::vector<std::string> changeable_fields(const Catalog& catalog) {
  const SpecTables tables(catalog);
  std::vector<std::string> paths;
  collect_paths(
      tables.root.fields, [](const Field& field) { return field.is_changeable; }, {}, paths);
  return paths;
}

std::vector<std::string> values_of_run(const Catalog& catalog, const TrainSpec& spec,
                                       const std::string& stored, const std::string& file) {
  const SpecTables tables(catalog);
  std::vector<std::string> paths, overrides;
  collect_paths(
      tables.root.fields, [](const Field& field) { return field.stored_default.has_value(); }, {},
      paths);
  const auto values_of = [&](const TrainSpec& read) {
    const FlatConfig flat = flat_config(show_spec(catalog, read), file);
    return std::map<std::string, std::string>(flat.values.begin(), flat.values.end());
  };
  const auto today = values_of(spec);
  std::erase_if(paths, [&](const std::string& path) {
    return !today.contains(path) || spec.origins.contains(path);
  });
  if (paths.empty()) return {};  // usual case: the stored config need not be read
  const auto run = values_of(load_stored_spec(catalog, stored, file));
  for (const std::string& path : paths) {
    const auto theirs = run.find(path);
    if (theirs == run.end() || theirs->second == today.at(path)) continue;
    overrides.push_back(path + "=" + theirs->second);
  }
  return overrides;
}

std::vector<std::string> refused_changes(const Catalog& catalog, const std::string& stored,
                                         const std::string& file, const std::string& resolved) {
  const auto shown = [&](const std::string& text, const std::string& name) {
    return show_to_compare(catalog, load_stored_spec(catalog, text, name));
  };
  return diff_specs(shown(stored, file), shown(resolved, "the config of this run"),
                    changeable_fields(catalog));
}

}  // namespace dpt
