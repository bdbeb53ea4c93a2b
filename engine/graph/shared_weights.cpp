#include "engine/graph/shared_weights.h"
#include "engine/layers/param_spec.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace dpt {
namespace {

bool is_of_start(const Field& field) {
  return field.name == "init" || field.name.find("_init") != std::string::npos;
}

/// Returns the first option that gives the layer other initial weights than the owner's; null if
/// there is none. Options with their default value do not count.
const Field* contradicting_start(const LayerSpec& layer, const LayerSpec& owner) {
  const std::shared_ptr<void> defaults = layer.op.table->make();
  for (const Field& field : layer.op.table->fields) {
    if (!is_of_start(field)) continue;
    const PlainValue own = field.get(layer.op.options.get());
    if (own != field.get(defaults.get()) && own != field.get(owner.op.options.get())) return &field;
  }
  return nullptr;
}

/// Lists parameters: "weight 8x4x3x3 and bias 8".
std::string text_of(const std::vector<ParamSpec>& params) {
  std::vector<std::string> texts;
  for (const ParamSpec& param : params) {
    texts.push_back(fmt::format("{} {}", param.name(), fmt::join(param.file_shape, "x")));
  }
  return texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, " and "));
}

bool has_same_shape(const ParamSpec& a, const ParamSpec& b) {
  return a.suffix == b.suffix && a.file_shape == b.file_shape;
}

bool has_same_layout(const ParamSpec& a, const ParamSpec& b) {
  return a.layout == b.layout && a.hwc == b.hwc;
}

/// Describes the input of the layer that has the parameter.
std::string features_of(const ParamSpec& param) {
  const bool is_image =
      param.layout == ParamLayout::linear_hwc || param.layout == ParamLayout::vector_hwc;
  return is_image
             ? fmt::format("a flattened image of {}x{}x{}", param.hwc.c, param.hwc.h, param.hwc.w)
             : "a vector";
}

}  // namespace

std::string problem_of_owner(const LayerSpec& layer, const LayerSpec& owner) {
  if (owner.op.type != layer.op.type) {
    return fmt::format("expected the name of another {}, found '{}', which is a {}", layer.op.type,
                       owner.name, owner.op.type);
  }
  if (!owner.share_weights.empty()) {
    return fmt::format(
        "'{0}' has no weights of its own, but shares those of '{1}'; write "
        "share_weights: {1}",
        owner.name, owner.share_weights);
  }
  if (const Field* field = contradicting_start(layer, owner)) {
    return fmt::format("the initial weights are those of '{}', so {} has no effect here; remove it",
                       owner.name, field->name);
  }
  return {};
}

std::string problem_of_shared(const std::vector<ParamSpec>& own, const std::string& owner,
                              const std::vector<ParamSpec>& theirs) {
  if (own.empty() && theirs.empty()) return "neither this layer nor '" + owner + "' has weights";
  const bool is_trained = std::all_of(own.begin(), own.end(), [](const ParamSpec& param) {
    return param.role == ParamRole::trained;
  });
  if (!is_trained) {
    return "a layer with running statistics cannot share them: they would be those of two "
           "different inputs; remove share_weights";
  }
  if (!std::equal(own.begin(), own.end(), theirs.begin(), theirs.end(), has_same_shape)) {
    return fmt::format("expected the parameters of '{}', which are {}; this layer's are {}", owner,
                       text_of(theirs), text_of(own));
  }
  const auto other = std::mismatch(own.begin(), own.end(), theirs.begin(), has_same_layout);
  if (other.first != own.end()) {
    return fmt::format(
        "expected {} as input, like that of '{}', found {}: the columns of one {} cannot stand for "
        "the features of both",
        features_of(*other.second), owner, features_of(*other.first), other.first->suffix);
  }
  return {};
}

}  // namespace dpt
