// The field tables of TrainSpec itself. Those of layers, optimizers and the like come in the
// Catalog; here they are joined into one tree that every user of the tables walks.
#pragma once

#include "engine/config/train_spec.h"

namespace dpt {

/// All tables of a config file. They point at one another, so the struct cannot be copied.
struct SpecTables {
  explicit SpecTables(const Catalog& catalog);
  SpecTables(const SpecTables&) = delete;
  SpecTables& operator=(const SpecTables&) = delete;

  ObjectTable val_split, normalize, transforms, data, layer, sequential, residual, model, loss,
      warmup, schedule, freeze, ema, swa, early_stopping, on_divergence, train, weights, keep_best,
      checkpoint, log;
  VariantTable layer_kinds;  ///< the layers of the catalog, and the blocks
  ObjectTable root;          ///< table of a TrainSpec
};

/// The key that chooses a network of the zoo.
inline constexpr const char* kZooTag = "zoo";

/// The only key of a config file that is not a field. Merging the files removes it.
inline constexpr const char* kExtendsKey = "extends";
inline constexpr const char* kExtendsDoc =
    "A base config, which this one extends. Mappings are merged; lists and other values replace "
    "those of the base. If a mapping names a kind (`type`, `dataset`) other than the base's, the "
    "fields of the base's kind are dropped.";

}  // namespace dpt
