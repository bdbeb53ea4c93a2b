#include "engine/config/blocks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <set>

#include "engine/config/issue.h"
#include "engine/config/scalars.h"
#include "engine/config/suggest.h"
#include "engine/config/yaml_tree.h"

namespace dpt {
namespace {

constexpr const char* kSequential = "Sequential";
constexpr const char* kResidual = "Residual";
constexpr int kImage = -1;  ///< stands for the model's input in place of a layer's index

template <class S>
Field repeat_field() {
  return field("repeat", &S::repeat,
               "Number of copies of the block, each with its own weights. Copies are called "
               "NAME.0, NAME.1, ... or, for a block without a name, by their indices in the list.")
      .range(1, static_cast<double>(kMaxLayers));
}

const SequentialBlock* as_sequential(const LayerSpec& item) {
  return item.op.type == kSequential ? &item.op.as<SequentialBlock>() : nullptr;
}
const ResidualBlock* as_residual(const LayerSpec& item) {
  return item.op.type == kResidual ? &item.op.as<ResidualBlock>() : nullptr;
}

std::optional<std::int64_t> repeat_of(const LayerSpec& item) {
  if (const SequentialBlock* block = as_sequential(item)) return block->repeat;
  if (const ResidualBlock* block = as_residual(item)) return block->repeat;
  return std::nullopt;
}

bool is_good_name(const std::string& name) {
  return !name.empty() && name.find_first_not_of(
                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "0123456789_.-") == std::string::npos;
}

/// Returns true if the tensors of a layer with this name could be mistaken for dpt's own tensors in
/// a checkpoint.
bool is_reserved(const std::string& name) {
  const std::string first = name.substr(0, name.find('.'));
  return first == "optim" || first == "dpt";
}

/// Gives each item of the tree its path, and a name if it has none. An unnamed repeated block keeps
/// the empty name, because each of its copies gets its own.
class Namer {
 public:
  Namer(const std::map<std::string, Where>& origins, const ReportIssue& report)
      : origins_(origins), report_(report) {}

  /// Names the items of a list, counting from `index`. Returns the index after that of the last
  /// item.
  std::int64_t name(std::vector<LayerSpec>& list, const std::string& path, std::int64_t index = 0) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      LayerSpec& item = list[i];
      item.path = fmt::format("{}.{}", path, i);
      const std::optional<std::int64_t> repeat = repeat_of(item);
      const bool is_named = origins_.contains(item.path + ".name");
      if (is_named && !is_good_name(item.name)) {
        report_(item.path + ".name",
                fmt::format("expected a layer name of letters, digits, '_', '-' and "
                            "'.', found {}",
                            in_quotes(item.name)));
      }
      if (is_named && is_reserved(item.name)) {
        report_(item.path + ".name",
                fmt::format("{} is reserved: in checkpoints, names that begin with 'optim.' or "
                            "'dpt.' belong to the optimizer and to dpt",
                            in_quotes(item.name)));
      }
      if (!is_named && !repeat) item.name = fmt::format("{}", index);
      name_children(item);
      index += is_named ? 1 : repeat.value_or(1);
    }
    return index;
  }

 private:
  /// Copies of the spec share a block, so the block is replaced, not modified.
  void name_children(LayerSpec& item) {
    if (const SequentialBlock* block = as_sequential(item)) {
      SequentialBlock named = *block;
      name(named.layers, item.path + ".layers");
      replace(item, std::move(named));
    } else if (const ResidualBlock* residual = as_residual(item)) {
      ResidualBlock named = *residual;
      const std::int64_t next = name(named.layers, item.path + ".layers");
      name(named.shortcut, item.path + ".shortcut", next);
      replace(item, std::move(named));
    }
  }

  template <class Block>
  static void replace(LayerSpec& item, Block named) {
    item.op.options = std::make_shared<Block>(std::move(named));
    item.op.table = nullptr;  // points into the reader's tables, which the spec outlives
  }

  const std::map<std::string, Where>& origins_;
  const ReportIssue& report_;
};

/// Walks the tree twice: first to collect all names, then to create the layers. A name refers to
/// the item with that name in the innermost enclosing block that has such an item. A reference to a
/// later item is an error, even if an outer block has an earlier item with that name.
class Expander {
 public:
  Expander(ModelSpec& model, const VariantTable& kinds, const std::map<std::string, Where>& origins,
           const ReportIssue& report)
      : model_(model), kinds_(kinds), origins_(origins), report_(report) {}

  void expand() {
    for (const bool is_dry : {true, false}) {
      is_dry_ = is_dry;
      emitted_ = 0;
      outputs_.clear();
      model_.layers.clear();
      children_.clear();
      walk(model_.written, {""}, kImage);
      if (is_too_long_) return;
      if (is_dry) everything_ = outputs_;
    }
  }

 private:
  /// Prefixes of the blocks around an item, outermost ("") first.
  using Scopes = std::vector<std::string>;

  static std::string join(const std::string& scope, const std::string& name) {
    return scope.empty() ? name : scope + "." + name;
  }
  static Scopes inside(Scopes scopes, const std::string& prefix) {
    scopes.push_back(prefix);
    return scopes;
  }

  void issue(const std::string& path, std::string text) {
    if (!is_dry_) report_(path, std::move(text));
  }

  /// Returns "layer 'FULL': " for an item inside a block and for a copy, because the config does
  /// not contain their full names. Otherwise returns an empty string.
  static std::string who(const LayerSpec& item, const std::string& full) {
    const bool is_as_written =
        item.path.find(".layers.", sizeof("model.layers.") - 1) == std::string::npos &&
        item.path.find(".shortcut.") == std::string::npos && full == item.name;
    return is_as_written ? std::string() : fmt::format("layer '{}': ", full);
  }

  /// Expands a list whose first item reads layer `in`, and returns its last layer. `index` is the
  /// index of the next unnamed copy.
  int walk(const std::vector<LayerSpec>& list, const Scopes& scopes, int in,
           std::int64_t* index = nullptr) {
    std::int64_t own_index = 0;
    if (!index) index = &own_index;
    for (const LayerSpec& item : list) {
      if (is_too_long_) return in;
      const std::optional<std::int64_t> repeat = repeat_of(item);
      if (!repeat) {
        in = emit(item, scopes, item.name, in, true);
        ++*index;
      } else if (item.name.empty()) {
        for (std::int64_t copy = 0; copy < *repeat && !is_too_long_; ++copy) {
          in = emit(item, scopes, fmt::format("{}", (*index)++), in, copy == 0);
        }
      } else {
        const std::string full = join(scopes.back(), item.name);
        const Scopes inner = inside(scopes, full);
        {
          const Quiet quiet(*this, full);
          for (std::int64_t copy = 0; copy < *repeat && !is_too_long_; ++copy) {
            in = emit(item, inner, fmt::format("{}", copy), in, copy == 0);
          }
        }
        add_name(item, scopes.back(), item.name, in);
        ++*index;
      }
    }
    return in;
  }

  /// Expands one item, or one copy of it, and returns its last layer.
  int emit(const LayerSpec& item, const Scopes& scopes, const std::string& name, int in,
           bool is_first_copy) {
    const std::string full = join(scopes.back(), name);
    const SequentialBlock* sequential = as_sequential(item);
    const ResidualBlock* residual = as_residual(item);
    int out = in;
    check_shares_no_weights(item, full);
    if (++emitted_ > kMaxLayers * kMaxConfigDepth) is_too_long_ = true;  // blocks without layers
    if (sequential || residual) {
      const Scopes inner = inside(scopes, full);
      const Quiet quiet(*this, full);
      if (is_first_copy) in = block_input(item, scopes, full, in);
      std::int64_t index = 0;
      out = walk(sequential ? sequential->layers : residual->layers, inner, in, &index);
      if (residual) out = add_up(item, *residual, inner, in, out, index);
    } else {
      LayerSpec layer = item;
      layer.name = full;
      layer.from = resolved(item, scopes, full);
      layer.share_weights = owner_of_weights(item, scopes, full);
      out = push(std::move(layer), in);
    }
    add_name(item, scopes.back(), name, out);
    return out;
  }

  int add_up(const LayerSpec& item, const ResidualBlock& block, const Scopes& scopes, int in,
             int branch, std::int64_t index) {
    const int shortcut = walk(block.shortcut, scopes, in, &index);
    if (is_too_long_) return in;
    LayerSpec sum = added(item, "Add", scopes.back(), kSumName);
    sum.from = {name_of(branch), name_of(shortcut)};
    int out = push(std::move(sum), branch);
    add_name(item, scopes.back(), kSumName, out, true);
    if (!block.activation) return out;
    out = push(added(item, *block.activation, scopes.back(), kActivationName), out);
    add_name(item, scopes.back(), kActivationName, out, true);
    return out;
  }

  /// Creates a layer that the config does not list, with the defaults of its type.
  LayerSpec added(const LayerSpec& block, const std::string& type, const std::string& scope,
                  const char* name) const {
    LayerSpec layer;
    layer.name = join(scope, name);
    layer.where = block.where;
    for (const ObjectTable* kind : kinds_.alternatives) {
      if (kind->name == type) layer.op = {type, block.where, kind, kind->make()};
    }
    assert(layer.op.table);
    return layer;
  }

  /// Appends a layer that reads layer `in` unless its `from` says otherwise.
  int push(LayerSpec layer, int in) {
    const int at = static_cast<int>(model_.layers.size());
    if (model_.layers.size() == kMaxLayers) {
      if (!is_too_long_) {
        report_(layer.path.empty() ? "model.layers" : layer.path,
                fmt::format("expected at most {} layers after expanding all blocks, found more; "
                            "layer '{}' exceeds the limit",
                            kMaxLayers, layer.name));
      }
      is_too_long_ = true;
      return at - 1;
    }
    if (layer.from.empty() && in != at - 1) layer.from = {name_of(in)};
    model_.layers.push_back(std::move(layer));
    return at;
  }

  std::string name_of(int layer) const {
    return layer == kImage ? "input" : model_.layers[layer].name;
  }

  /// Meaning of a name: the layer whose output it stands for, and the item that has the name.
  struct Named {
    int output = kImage;
    const LayerSpec* item = nullptr;
    bool is_added = false;  ///< true for a layer that a Residual adds
  };

  void add_name(const LayerSpec& item, const std::string& scope, const std::string& name,
                int output, bool is_added = false) {
    const Named named{output, &item, is_added};
    const auto [other, is_new] = outputs_.emplace(join(scope, name), named);
    if (is_new) {
      children_[scope].push_back(name);
    } else {
      not_unique(other->first, other->second, named);
    }
  }

  void not_unique(const std::string& full, const Named& first, const Named& second) {
    // The name of an unnamed layer is its index. If the config gives that name to another layer,
    // report the layer with the given name.
    const auto is_given = [&](const Named& named) {
      return !named.is_added && origins_.contains(named.item->path + ".name");
    };
    const Named& at = is_given(second) ? second : first;
    const Named& before = is_given(second) ? first : second;
    if (!is_given(at)) return;
    const std::string path = at.item->path + ".name";
    if (is_dry_ || twins_ > 0 || !reported_.insert(path).second) return;
    std::string text =
        who(*at.item, full) +
        fmt::format("expected a unique layer name, found {}, which is also the name of ",
                    in_quotes(at.item->name));
    if (before.is_added) {
      text += fmt::format("the layer that its Residual block adds{}", line_of(*before.item));
    } else {
      text += fmt::format("layer {}{}", before.item->path.substr(before.item->path.rfind('.') + 1),
                          line_of(*before.item));
    }
    issue(path, std::move(text));
  }

  static std::string line_of(const LayerSpec& layer) {
    return layer.where.line > 0 ? fmt::format(" in line {}", layer.where.line) : std::string{};
  }

  /// Returns the input of a block: the layer named by its `from`, or `in` without one.
  int block_input(const LayerSpec& item, const Scopes& scopes, const std::string& full, int in) {
    if (item.from.empty() || is_dry_) return in;
    if (item.from.size() > 1) {
      issue(item.path + ".from",
            who(item, full) +
                fmt::format("expected one name in 'from' of a {} block, found {} ({})",
                            item.op.type, item.from.size(), fmt::join(item.from, ", ")));
      return in;
    }
    const Named* found = find(item, input_of(item, 0), scopes, full);
    return found ? found->output : in;
  }

  std::vector<std::string> resolved(const LayerSpec& item, const Scopes& scopes,
                                    const std::string& full) {
    std::vector<std::string> names;
    for (std::size_t k = 0; k < item.from.size() && !is_dry_; ++k) {
      const Named* found = find(item, input_of(item, k), scopes, full);
      names.push_back(found ? name_of(found->output) : item.from[k]);
    }
    return names;
  }

  void check_shares_no_weights(const LayerSpec& item, const std::string& full) {
    const std::string path = item.path + ".share_weights";
    const bool is_block = as_sequential(item) || as_residual(item);
    if (!is_block || item.share_weights.empty() || is_dry_ || !reported_.insert(path).second)
      return;
    issue(path, who(item, full) + fmt::format("a {} block has no weights of its own: write "
                                              "share_weights in the layers of the block",
                                              item.op.type));
  }

  /// Returns the full name of the layer whose weights an item uses; empty if it uses its own.
  std::string owner_of_weights(const LayerSpec& item, const Scopes& scopes,
                               const std::string& full) {
    const Reference reference{item.share_weights, "share_weights", item.path + ".share_weights"};
    if (item.share_weights.empty() || is_dry_) return item.share_weights;
    const Named* found = find(item, reference, scopes, full);
    if (!found) return item.share_weights;
    if (!found->is_added && (as_sequential(*found->item) || as_residual(*found->item))) {
      if (reported_.insert(reference.path).second) {
        issue(reference.path,
              who(item, full) + fmt::format("expected the name of a layer in 'share_weights', "
                                            "found {}, which is a {} block: name a layer of it",
                                            in_quotes(reference.name), found->item->op.type));
      }
      return item.share_weights;
    }
    return name_of(found->output);
  }

  /// A name that an item refers to, and its place in the config.
  struct Reference {
    std::string name;
    const char* field;  ///< "from" or "share_weights"
    std::string path;

    bool may_be_image() const { return name == "input" && field == std::string("from"); }
  };
  static Reference input_of(const LayerSpec& item, std::size_t k) {
    return {item.from[k], "from", fmt::format("{}.from.{}", item.path, k)};
  }

  /// Returns the meaning of a name. Reports an issue and returns null if no earlier layer has that
  /// name.
  const Named* find(const LayerSpec& item, const Reference& reference, const Scopes& scopes,
                    const std::string& full) {
    const std::string& name = reference.name;
    const std::string& path = reference.path;
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
      const std::string wanted = join(*scope, name);
      if (const auto earlier = outputs_.find(wanted); earlier != outputs_.end()) {
        return &earlier->second;
      }
      if (!everything_.contains(wanted) || reference.may_be_image()) continue;
      if (!reported_.insert(path).second) return nullptr;
      const bool is_around = std::find(scopes.begin(), scopes.end(), wanted) != scopes.end();
      std::string text =
          who(item, full) +
          fmt::format(
              "expected the name of an earlier layer in '{}', found {}, "
              "which {}",
              reference.field, in_quotes(name),
              is_around ? "is a block around this layer" : "does not come before this layer");
      // If the item with this name hides an earlier layer of an outer block, say so.
      for (auto outer = scope + 1; outer != scopes.rend(); ++outer) {
        if (!outputs_.contains(join(*outer, name))) continue;
        text += fmt::format("; it hides the earlier layer '{}', so rename one of them",
                            join(*outer, name));
        break;
      }
      issue(path, std::move(text));
      return nullptr;
    }
    static const Named kInput;  // the model's input, not a layer
    if (reference.may_be_image()) return &kInput;
    if (reported_.insert(path).second) issue(path, who(item, full) + unknown(reference, scopes));
    return nullptr;
  }

  /// Describes an unknown name, and suggests the names visible to the reference: the earlier
  /// children of each enclosing block.
  std::string unknown(const Reference& reference, const Scopes& scopes) {
    std::string text = fmt::format("expected the name of an earlier layer in '{}', found {}",
                                   reference.field, in_quotes(reference.name));
    if (reported_.size() > kMaxIssues) return text;
    std::vector<std::string> names;
    std::set<std::string> seen;
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
      for (const std::string& child : children_[*scope]) {
        if (seen.insert(child).second) names.push_back(child);
      }
    }
    std::vector<std::string> known = names;
    if (reference.field == std::string("from")) known.push_back("input");
    const std::string near = closest(reference.name, known);
    text += near.empty() ? "." : fmt::format(", did you mean '{}'?", near);
    text += names.empty() ? " No layer comes before this one"
                          : " Earlier layers: " + known_names(names);
    return text;
  }

  /// Scope of a block's expansion. If a block with the name `full` already exists, suppresses
  /// reports of duplicate names inside this one: only the block's own name is reported.
  class Quiet {
   public:
    Quiet(Expander& owner, const std::string& full)
        : owner_(owner), is_twin_(owner.outputs_.contains(full)) {
      if (is_twin_) ++owner_.twins_;
    }
    ~Quiet() {
      if (is_twin_) --owner_.twins_;
    }
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;

   private:
    Expander& owner_;
    bool is_twin_;
  };

  ModelSpec& model_;
  const VariantTable& kinds_;
  const std::map<std::string, Where>& origins_;
  const ReportIssue& report_;
  bool is_dry_ = true;
  bool is_too_long_ = false;
  std::size_t emitted_ = 0;
  int twins_ = 0;  ///< number of enclosing blocks that share their name with an earlier item
  std::map<std::string, Named> outputs_;     ///< by full name; items expanded so far
  std::map<std::string, Named> everything_;  ///< by full name; all items
  std::map<std::string, std::vector<std::string>>
      children_;                    ///< children of a block so far, in order
  std::set<std::string> reported_;  ///< reported paths: copies of a block have the same errors
};

}  // namespace

ObjectTable sequential_table(const ObjectTable& layer) {
  using S = SequentialBlock;
  return block_table(object_table<S>(
      kSequential,
      "A block: layers that run in sequence. A child is called NAME.CHILD, or NAME.INDEX if it has "
      "no name. In it, `from` looks for a name in the same block first, then in the enclosing "
      "blocks.",
      {objects_field("layers", &S::layers, layer, "The layers of the block, in order.")
           .required()
           .items(1, kMaxLayers),
       repeat_field<S>()}));
}

ObjectTable residual_table(const ObjectTable& layer, const VariantTable& kinds) {
  using S = ResidualBlock;
  Field activation = field(
      "activation", &S::activation,
      "Type of a layer after the sum, called NAME.activation, with the defaults of that type.");
  activation.type = FieldType::choice;
  for (const ObjectTable* kind : kinds.alternatives) {
    if (kind->is_activation) activation.choices.push_back(kind->name);
  }
  return block_table(object_table<S>(
      kResidual,
      "A block that adds the output of its layers to that of its shortcut; both read the block's "
      "input. Children are named like those of a Sequential; the indices of unnamed layers of the "
      "shortcut follow those of `layers`. The sum is a layer called NAME.add.",
      {objects_field("layers", &S::layers, layer, "The layers of the branch, in order.")
           .required()
           .items(1, kMaxLayers),
       objects_field(
           "shortcut", &S::shortcut, layer,
           "The layers of the shortcut, in order; if empty, the shortcut is the input itself."),
       std::move(activation), repeat_field<S>()}));
}

void expand_blocks(ModelSpec& model, const VariantTable& kinds,
                   const std::map<std::string, Where>& origins, const ReportIssue& report) {
  Namer(origins, report).name(model.written, "model.layers");
  Expander(model, kinds, origins, report).expand();
}

}  // namespace dpt
