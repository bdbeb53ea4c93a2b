// Blocks: lists of layers under one name, written once and repeated. A config may nest them; they
// are expanded into the flat list that the Plan reads, so only the reader deals with blocks.
//
// Names: the children of a block NAME are called NAME.CHILD. The name of an unnamed child is its
// index, as in nn.Sequential. A block with `repeat: N` stands for N copies in its list: NAME.0 to
// NAME.N-1 if it has a name, otherwise copies with consecutive indices.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/train_spec.h"

namespace dpt {

/// `{type: Sequential, layers: [...]}`: the layers, one after the other.
struct SequentialBlock {
  std::vector<LayerSpec> layers;
  std::optional<std::int64_t> repeat;  ///< if set, copies are numbered, even a single one
};

/// `{type: Residual, layers: [...], shortcut: [...]}`: activation(layers(x) + shortcut(x)).
struct ResidualBlock {
  std::vector<LayerSpec> layers;
  std::vector<LayerSpec> shortcut;        ///< empty = the identity
  std::optional<std::string> activation;  ///< type of the layer after the sum
  std::optional<std::int64_t> repeat;
};

inline constexpr std::size_t kMaxLayers = 10'000;  ///< per list, and in total after expansion

/// Returns the table of a kind of block. `layer`, the table of the items of its lists, must outlive
/// the result.
ObjectTable sequential_table(const ObjectTable& layer);
ObjectTable residual_table(const ObjectTable& layer, const VariantTable& kinds);

/// Names of the layers that a Residual adds to the layers of its lists.
inline constexpr const char* kSumName = "add";
inline constexpr const char* kActivationName = "activation";

/// Function that reports a problem of the value at a dotted path of the config.
using ReportIssue = std::function<void(const std::string& path, std::string text)>;

/// Creates model.layers from model.written: expands the blocks, completes the names and resolves
/// `from`. `origins` has the paths that the config sets; `kinds` has the layer Add.
void expand_blocks(ModelSpec& model, const VariantTable& kinds,
                   const std::map<std::string, Where>& origins, const ReportIssue& report);

}  // namespace dpt
