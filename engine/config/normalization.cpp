#include "engine/config/normalization.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace dpt {
namespace {

/// Returns the Normalize that is equivalent to data.normalize.
Variant normalize_of(const VariantTable& transforms, const NormalizeSpec& normalize) {
  const auto table =
      std::find_if(transforms.alternatives.begin(), transforms.alternatives.end(),
                   [](const ObjectTable* each) { return each->name == "Normalize"; });
  assert(table != transforms.alternatives.end());
  const std::shared_ptr<void> options = (*table)->make();
  for (const Field& field : (*table)->fields) {
    field.set(options.get(), field.name == "mean" ? normalize.mean : normalize.std);
  }
  return {"Normalize", normalize.where, *table, options};
}

}  // namespace

void apply_normalization(const VariantTable& transforms, DataSpec& data) {
  TransformsSpec& lists = data.transforms;
  lists.train = lists.written_train;
  lists.eval = lists.written_eval;
  if (!data.normalize.has_numbers()) return;
  const Variant normalize = normalize_of(transforms, data.normalize);
  for (std::vector<Variant>* list : {&lists.train, &lists.eval}) {
    const auto erasing = std::find_if(list->begin(), list->end(), [](const Variant& each) {
      return each.type == "RandomErasing";
    });
    list->insert(erasing, normalize);
  }
}

std::string written_normalize(const TransformsSpec& transforms) {
  for (const auto& [name, list] : {std::pair("train", &transforms.written_train),
                                   std::pair("eval", &transforms.written_eval)}) {
    const auto found = std::find_if(list->begin(), list->end(),
                                    [](const Variant& each) { return each.type == "Normalize"; });
    if (found == list->end()) continue;
    return fmt::format("data.transforms.{}.{}", name, found - list->begin());
  }
  return {};
}

}  // namespace dpt
