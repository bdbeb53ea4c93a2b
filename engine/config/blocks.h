// Blocks: lists of layers under one name, written once and repeated. A config may nest them; they
// are expanded into the flat list that the Plan reads, so nothing after the reader knows them.
//
// Names: the children of a block NAME are NAME.CHILD; a child without a name is called by its
// index, as in nn.Sequential. A block with `repeat: N` stands in its list N times: with a name as
// NAME.0 to NAME.N-1, without one by the indices of its copies.
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
  std::optional<std::int64_t> repeat;  ///< written: the copies are numbered, even one
};

/// `{type: Residual, layers: [...], shortcut: [...]}`: activation(layers(x) + shortcut(x)).
struct ResidualBlock {
  std::vector<LayerSpec> layers;
  std::vector<LayerSpec> shortcut;        ///< empty = the identity
  std::optional<std::string> activation;  ///< a type of layer, with its defaults
  std::optional<std::int64_t> repeat;
};

inline constexpr std::size_t kMaxLayers = 10'000;  ///< maximum of a list, and after expansion

/// `layer` is the table of the items of their lists; it must outlive the result.
ObjectTable sequential_table(const ObjectTable& layer);
ObjectTable residual_table(const ObjectTable& layer, const VariantTable& kinds);

/// The names that a Residual gives to the layers that it adds to those of its lists.
inline constexpr const char* kSumName = "add";
inline constexpr const char* kActivationName = "activation";

/// Tells what is wrong with the value at a dotted path of the config.
using ReportIssue = std::function<void(const std::string& path, std::string text)>;

/// Makes model.layers from model.written: blocks expanded, names complete, `from` resolved. Fills
/// in what names were not written. `origins` are the paths that were; `kinds` has the Add.
void expand_blocks(ModelSpec& model, const VariantTable& kinds,
                   const std::map<std::string, Where>& origins, const ReportIssue& report);

}  // namespace dpt
