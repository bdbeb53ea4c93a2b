#include "app/evaluate/model_changes.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "app/base/catalog.h"
#include "engine/config/flat_values.h"
#include "engine/config/read_spec.h"
#include "engine/config/stored_spec.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

/// Returns the paths of fields that may differ: those that a resumed run may change, and those that
/// select the samples and the metrics.
std::vector<std::string> free_paths() {
  std::vector<std::string> paths = changeable_fields(catalog());
  for (const char* path : {"seed", "metrics", "data.val_split", "data.batch_size",
                           "data.cache_shorter_side", "data.sampler", "data.shuffle"}) {
    paths.emplace_back(path);
  }
  const VariantTable& kinds = catalog().datasets;
  paths.push_back("data." + kinds.tag);
  for (const ObjectTable* kind : kinds.alternatives) {
    for (const Field& field : kind->fields) paths.push_back("data." + field.name);
  }
  return paths;
}

}  // namespace

std::string list_of_changes(const std::vector<std::string>& changes, const std::string& separator) {
  constexpr std::size_t kMaxShown = 20;
  const std::size_t shown = std::min(kMaxShown, changes.size());
  const std::string text = fmt::format(
      "{}",
      fmt::join(changes.begin(), changes.begin() + static_cast<std::ptrdiff_t>(shown), separator));
  const std::size_t more = changes.size() - shown;
  return more == 0 ? text : fmt::format("{}{}(and {} more)", text, separator, more);
}

std::vector<std::string> without_known_numbers(const CheckpointHeader& header,
                                               const std::string& path,
                                               std::vector<std::string> overrides) {
  const TrainSpec run = load_stored_spec(catalog(), header.config, path);
  if (run.data.normalize.mode == NormalizeMode::automatic) {
    std::erase(overrides, "data.normalize=auto");
  }
  return overrides;
}

std::vector<std::string> changes_of_model(const CheckpointHeader& header, const std::string& path,
                                          const std::vector<std::string>& overrides) {
  if (overrides.empty()) return {};
  const auto shown = [&](const std::vector<std::string>& words) {
    return show_to_compare(catalog(), load_stored_spec(catalog(), header.config, path, words));
  };
  return diff_specs(shown({}), shown(overrides), free_paths());
}

void check_model_changes(const std::string& path, const std::vector<std::string>& changes,
                         const std::string& command, bool allowed, const std::string& way_out) {
  if (changes.empty() || allowed) return;
  fail(ErrorKind::usage,
       "{}: expected the values of the checkpoint, found other values:\n  {}\n"
       "dpt {} may change only the location of the data (data.root and the other fields of the "
       "data set), data.workers, data.prefetch, data.cache, data.on_bad_sample, data.batch_size, "
       "data.val_split, seed, metrics, devices and device_weights. Leave the other changes out{}",
       path, list_of_changes(changes, "\n  "), command, way_out);
}

std::string text_of_changes(const std::vector<std::string>& changes) {
  if (changes.empty()) return {};
  return fmt::format("not the model of the checkpoint (--allow-other-model): {}",
                     list_of_changes(changes, "; "));
}

}  // namespace dpt
