// make_plan: turns the layers as written into shapes, fused nodes and a parameter table. Collects
// all problems with the model's shapes and references, and throws them together.
#include "engine/graph/make_plan.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <optional>

#include "engine/config/name_patterns.h"
#include "engine/config/suggest.h"
#include "engine/graph/param_places.h"
#include "engine/graph/shared_weights.h"
#include "engine/layers/activation_shape.h"
#include "engine/layers/param_spec.h"
#include "engine/layers/shape_checks.h"
#include "engine/losses/loss.h"

namespace dpt {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 36;  // 256 GiB of fp32

std::string param_name(const std::string& layer, const ParamSpec& spec) {
  return spec.suffix.empty() ? layer : layer + "." + spec.suffix;
}

/// A layer that is not yet in the plan. Inputs are indices of layers; kModelInput is the image.
constexpr int kModelInput = -1;
struct Draft {
  const LayerSpec* spec = nullptr;
  std::shared_ptr<const Layer> layer;
  std::vector<int> inputs;             // empty if `from` is invalid
  std::optional<int> owner;            // layer whose parameters it shares, if any
  std::optional<ActivationShape> out;  // empty if an earlier layer failed
  int consumers = 0;
  bool input_gradient = false;
  bool trains_upto_here = false;  // true if it or a layer upstream has trained parameters
};

class PlanBuilder {
 public:
  explicit PlanBuilder(const TrainSpec& spec) : spec_(spec) {}

  Plan build() {
    set_type();
    set_input();
    resolve_inputs();
    infer_shapes();
    check_outputs();
    throw_issues();
    make_rows();
    make_nodes();
    check_frozen();
    throw_issues();
    place_params(plan_);
    return std::move(plan_);
  }

 private:
  void issue(const Where& where, const std::string& text) {
    issues_.push_back({where, where.file.empty() ? text : where.text() + ": " + text});
  }
  void issue(const Draft& draft, const std::string& text) {
    issue(draft.spec->where,
          fmt::format("layer '{}' ({}): {}", draft.spec->name, draft.spec->op.type, text));
  }

  void throw_issues() {
    if (issues_.empty()) return;
    std::stable_sort(issues_.begin(), issues_.end(), [](const Issue& a, const Issue& b) {
      return std::pair(a.where.line, a.where.column) < std::pair(b.where.line, b.where.column);
    });
    std::string text;
    for (const Issue& each : issues_) text += (text.empty() ? "" : "\n") + each.text;
    throw Error(ErrorKind::usage, text);
  }

  void set_type() {
    plan_.type = spec_.train.precision == Precision::bf16 ? DType::bf16 : DType::f32;
    plan_.tf32 = spec_.train.precision == Precision::tf32;
  }

  void set_input() {
    const std::vector<std::int64_t>& input = spec_.model.input;
    const bool good = input.size() == 3 &&
                      std::all_of(input.begin(), input.end(),
                                  [](std::int64_t size) { return size >= 1 && size <= 65536; });
    if (!good) {
      issue(spec_.model.where,
            fmt::format("model.input: expected [channels, height, width], each 1 to 65536, found "
                        "[{}]",
                        fmt::join(input, ", ")));
      return;
    }
    const ActivationShape shape{{input[1], input[2], input[0]}, false};
    if (shape.elements() > kMaxElements) {
      issue(spec_.model.where, fmt::format("model.input: {} is too large", shape.text()));
      return;
    }
    input_ = plan_.input = shape;
  }

  /// Turns names into indices of layers. "input" refers to the image, unless an earlier layer has
  /// that name.
  void resolve_inputs() {
    const std::vector<LayerSpec>& layers = spec_.model.layers;
    if (layers.empty()) issue(spec_.model.where, "model.layers: expected at least one layer");
    std::map<std::string, int> known{{"input", kModelInput}};
    std::map<std::string, Where> first_use;
    for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
      Draft draft;
      draft.spec = &layers[i];
      draft.layer = make_layer(layers[i].op);
      draft.inputs = inputs_of(draft, i, known);
      draft.owner = owner_of(draft, known);
      for (const int input : draft.inputs) {
        if (input != kModelInput) ++drafts_[input].consumers;
      }
      if (const auto [use, is_new] = first_use.emplace(layers[i].name, layers[i].where); !is_new) {
        issue(draft, fmt::format("the layer at {} already has this name; names must be unique",
                                 use->second.text()));
      }
      known[layers[i].name] = i;
      drafts_.push_back(std::move(draft));
    }
  }

  /// Returns the layers that layer `i` reads, in order. If they are not valid inputs for it, adds
  /// an issue and returns nothing.
  std::vector<int> inputs_of(const Draft& draft, int i, const std::map<std::string, int>& known) {
    const std::vector<std::string>& from = draft.spec->from;
    const InputCount needed = draft.layer->input_count();
    if (from.empty()) {
      if (needed.least == 1) return {i - 1};  // the layer before, or kModelInput
      issue(draft, fmt::format("from: expected the names of at least {} layers, found none; write "
                               "from: [a, b]",
                               needed.least));
      return {};
    }
    const auto count = static_cast<int>(from.size());
    if (count < needed.least || count > needed.most) {
      const std::string expected = needed.most == 1
                                       ? std::string("one input")
                                       : fmt::format("{} to {} inputs", needed.least, needed.most);
      issue(draft, fmt::format("from: expected {}, found {} ({})", expected, count,
                               fmt::join(from, ", ")));
      return {};
    }
    std::vector<int> inputs;
    for (const std::string& name : from) {
      const auto found = known.find(name);
      if (found != known.end()) {
        inputs.push_back(found->second);
      } else {
        issue(draft, "from: " + unknown_layer(name, known, "reads from"));
      }
    }
    return inputs.size() == from.size() ? inputs : std::vector<int>();
  }

  /// Returns the layer that share_weights names. Returns nothing if it names none. If the weights
  /// cannot be shared, adds an issue and returns nothing.
  std::optional<int> owner_of(const Draft& draft, const std::map<std::string, int>& known) {
    const std::string& name = draft.spec->share_weights;
    if (name.empty()) return std::nullopt;
    const auto found = known.find(name);
    std::string problem;
    if (found == known.end()) {
      problem = unknown_layer(name, known, "shares the weights of");
    } else if (found->second == kModelInput) {
      problem = "expected the name of a layer, found 'input', which is the image";
    } else {
      problem = problem_of_owner(*draft.spec, *drafts_[found->second].spec);
    }
    if (problem.empty()) return found->second;
    issue(draft, "share_weights: " + problem);
    return std::nullopt;
  }

  std::string unknown_layer(const std::string& name, const std::map<std::string, int>& known,
                            const char* what_it_does) {
    for (const LayerSpec& later : spec_.model.layers) {
      if (later.name == name) {
        return fmt::format("'{}' is this layer or a later one; a layer {} layers above it", name,
                           what_it_does);
      }
    }
    std::vector<std::string> names;
    for (const auto& [each, index] : known) names.push_back(each);
    const std::string near = closest(name, names);
    return fmt::format("there is no layer '{}' above{}", name,
                       near.empty()
                           ? fmt::format(" (the layers above are: {})", fmt::join(names, ", "))
                           : fmt::format("; did you mean '{}'?", near));
  }

  std::optional<ActivationShape> shape_of(int layer) const {
    return layer == kModelInput ? input_ : drafts_[layer].out;
  }

  /// Returns the shapes of a layer's inputs; empty if one is unknown (the reason was already
  /// reported).
  std::vector<ActivationShape> shapes_into(const Draft& draft) const {
    std::vector<ActivationShape> shapes;
    for (const int input : draft.inputs) {
      const std::optional<ActivationShape> shape = shape_of(input);
      if (!shape) return {};
      shapes.push_back(*shape);
    }
    return shapes;
  }

  void infer_shapes() {
    for (Draft& draft : drafts_) {
      const std::vector<ActivationShape> in = shapes_into(draft);
      if (in.empty()) continue;
      try {
        draft.out = draft.layer->infer(in);
      } catch (const ShapeError& error) {
        issue(draft, error.what());
        draft.out = error.assumed();
        continue;
      } catch (const Error& error) {
        issue(draft, error.what());
        continue;
      }
      check_size(draft, in);
      check_shared(draft, in);
    }
  }

  /// Checks that a layer has the same parameters as the layer whose weights it shares.
  void check_shared(const Draft& draft, const std::vector<ActivationShape>& in) {
    if (!draft.owner) return;
    const Draft& owner = drafts_[*draft.owner];
    const std::vector<ActivationShape> in_of_owner = shapes_into(owner);
    if (in_of_owner.empty()) return;
    const std::string problem = problem_of_shared(draft.layer->params(in), owner.spec->name,
                                                  owner.layer->params(in_of_owner));
    if (!problem.empty()) issue(draft, "share_weights: " + problem);
  }

  void check_size(Draft& draft, const std::vector<ActivationShape>& in) {
    if (draft.out->elements() > kMaxElements) {
      issue(draft, fmt::format("its output of {} is too large", draft.out->text()));
      draft.out.reset();
      return;
    }
    for (const ParamSpec& param : draft.layer->params(in)) {
      double count = 1;
      for (const std::int64_t size : param.file_shape) count *= static_cast<double>(size);
      if (count <= static_cast<double>(kMaxElements)) continue;
      issue(draft, fmt::format("its {} of {} is too large for its input of {}", param.suffix,
                               fmt::join(param.file_shape, "x"), in[0].text()));
      draft.out.reset();
      return;
    }
  }

  /// Checks that the last layer gives one number per class and that every other layer has a reader.
  void check_outputs() {
    if (drafts_.empty()) return;
    const bool all_resolved = std::none_of(drafts_.begin(), drafts_.end(),
                                           [](const Draft& d) { return d.inputs.empty(); });
    for (std::size_t i = 0; all_resolved && i + 1 < drafts_.size(); ++i) {
      if (drafts_[i].consumers > 0) continue;
      issue(drafts_[i],
            "no layer reads its output, and it is not the last layer; remove it or name it in a "
            "later layer's from");
    }
    const Draft& last = drafts_.back();
    if (!last.out) return;
    if (!last.out->flat) {
      issue(last,
            fmt::format(
                "the last layer must have one output per class, found an image of {} (C x H x W); "
                "end with {{type: Flatten}} and {{type: Linear, out_features: CLASSES}}",
                last.out->text()));
    } else if (last.out->elements() < 2 && !takes_one_output()) {
      issue(last, fmt::format("the last layer must have one output per class, at least 2, found {}",
                              last.out->elements()));
    }
    const auto has_params = [&](const Draft& draft) {
      const std::vector<ActivationShape> in = shapes_into(draft);
      return in.empty() || trained_elements(draft.layer->params(in)) > 0;
    };
    if (std::none_of(drafts_.begin(), drafts_.end(), has_params)) {
      issue(spec_.model.where,
            "model.layers: no layer has parameters, so there is nothing to train");
    }
  }

  void make_rows() {
    for (Draft& draft : drafts_) {
      const std::vector<ActivationShape> in = shapes_into(draft);
      const bool upstream = std::any_of(draft.inputs.begin(), draft.inputs.end(), [&](int input) {
        return input != kModelInput && drafts_[input].trains_upto_here;
      });
      draft.input_gradient = upstream;
      const std::vector<ParamSpec> params = draft.layer->params(in);
      draft.trains_upto_here =
          upstream || std::any_of(params.begin(), params.end(), [&](const ParamSpec& param) {
            return param.role == ParamRole::trained &&
                   !is_frozen(param_name(owner_name(draft), param));
          });
      LayerRow row;
      row.name = draft.spec->name;
      row.type = draft.spec->op.type;
      row.detail = draft.layer->detail();
      if (!draft.spec->from.empty()) {
        row.detail += fmt::format("{}from {}", row.detail.empty() ? "" : ", ",
                                  fmt::join(draft.spec->from, ", "));
      }
      if (draft.owner) {
        row.shares = owner_name(draft);
        row.detail += fmt::format("{}shares {}", row.detail.empty() ? "" : ", ", row.shares);
      }
      row.out = *draft.out;
      row.params = draft.owner ? 0 : trained_elements(params);
      row.forward_flops = draft.layer->forward_flops(in, *draft.out);
      if (draft.trains_upto_here) {
        row.backward_flops = draft.layer->backward_flops(in, *draft.out, upstream);
      }
      const bool over_input = draft.layer->is_in_place() &&
                              std::any_of(draft.inputs.begin(), draft.inputs.end(),
                                          [&](int input) { return may_be_written_over(input); });
      if (!draft.layer->is_view() && !over_input) {
        row.activation_bytes =
            draft.out->elements() * static_cast<std::int64_t>(size_of(plan_.type));
      }
      plan_.rows.push_back(std::move(row));
    }
  }

  /// Returns the layer name that begins the names of a layer's parameters.
  const std::string& owner_name(const Draft& draft) const {
    return draft.owner ? drafts_[*draft.owner].spec->name : draft.spec->name;
  }

  /// Returns true if a layer that reads the output of `layer` may overwrite it. Nothing else may
  /// read that output, directly or through a view, and the layer that computed it must not need it
  /// for backward. In-place layers need their outputs.
  bool may_be_written_over(int layer) const {
    while (layer != kModelInput && drafts_[layer].layer->is_view()) {
      if (drafts_[layer].consumers != 1) return false;
      layer = drafts_[layer].inputs[0];
    }
    return layer != kModelInput && drafts_[layer].consumers == 1 &&
           !drafts_[layer].layer->is_in_place();
  }

  static std::int64_t count_of(const ParamSpec& param) {
    std::int64_t count = 1;
    for (const std::int64_t size : param.file_shape) count *= size;
    return count;
  }

  /// Returns the number of elements that the optimizer updates. Running statistics do not count.
  static std::int64_t trained_elements(const std::vector<ParamSpec>& params) {
    std::int64_t elements = 0;
    for (const ParamSpec& param : params) {
      if (param.role == ParamRole::trained) elements += count_of(param);
    }
    return elements;
  }

  /// Returns the only layer that reads the output of `layer`; -1 if there are none or several, or
  /// if that layer has other inputs.
  int only_consumer(int layer) const {
    if (drafts_[layer].consumers != 1) return -1;
    for (int i = layer + 1; i < static_cast<int>(drafts_.size()); ++i) {
      const std::vector<int>& inputs = drafts_[i].inputs;
      if (std::find(inputs.begin(), inputs.end(), layer) != inputs.end()) {
        return inputs.size() == 1 ? i : -1;
      }
    }
    return -1;
  }

  void make_nodes() {
    plan_.values.push_back({plan_.input});
    std::vector<int> value_of(drafts_.size(), -1);  // index of each layer's output, if it exists
    std::vector<bool> is_fused(drafts_.size(), false);
    for (int i = 0; i < static_cast<int>(drafts_.size()); ++i) {
      if (is_fused[i]) continue;
      Node node;
      node.name = drafts_[i].spec->name;
      node.layer = drafts_[i].layer;
      node.source_layers = {i};
      node.input_gradient = drafts_[i].input_gradient;
      node.is_view = node.layer->is_view();
      node.where = drafts_[i].spec->where;
      for (const int input : drafts_[i].inputs) {
        node.inputs.push_back(input == kModelInput ? 0 : value_of[input]);
      }
      int last = i;
      for (int next = only_consumer(last); next >= 0; next = only_consumer(last)) {
        std::shared_ptr<const Layer> fused = node.layer->fuse(*drafts_[next].layer);
        if (!fused) break;
        node.layer = std::move(fused);
        node.source_layers.push_back(next);
        is_fused[next] = true;
        plan_.rows[next].fused_into = node.name;
        // Only the output of the whole node exists in memory.
        plan_.rows[last].activation_bytes = 0;
        plan_.rows[next].activation_bytes =
            drafts_[next].out->elements() * static_cast<std::int64_t>(size_of(plan_.type));
        last = next;
      }
      node.output = value_of[last] = static_cast<int>(plan_.values.size());
      plan_.values.push_back({*drafts_[last].out, drafts_[last].trains_upto_here});
      if (drafts_[i].owner) {
        share_params(node, *drafts_[i].owner);
      } else {
        add_params(node);
      }
      node.coupling = node.layer->coupling(node.is_frozen);
      plan_.nodes.push_back(std::move(node));
    }
    plan_.logits = value_of.back();
    assert(plan_.logits >= 0);
    plan_.classes = drafts_.back().out->elements();
  }

  void add_params(Node& node) {
    std::vector<ParamSpec> specs = node.layer->params(plan_.shapes_into(node));
    node.is_frozen =
        !specs.empty() && std::all_of(specs.begin(), specs.end(), [&](const ParamSpec& spec) {
          return is_frozen(param_name(node.name, spec));
        });
    for (ParamSpec& spec : specs) {
      Param param;
      param.name = param_name(node.name, spec);
      param.count = count_of(spec);
      param.is_frozen = spec.role == ParamRole::trained ? is_frozen(param.name) : node.is_frozen;
      param.spec = std::move(spec);
      param.node = param.last_node = static_cast<int>(plan_.nodes.size());
      node.params.push_back(static_cast<int>(plan_.params.size()));
      plan_.params.push_back(std::move(param));
    }
  }

  /// Gives a node the parameters of the earlier layer `owner`. That layer's node has the same name
  /// as the layer.
  void share_params(Node& node, int owner) {
    const auto first = std::find_if(plan_.nodes.begin(), plan_.nodes.end(), [&](const Node& each) {
      return each.name == drafts_[owner].spec->name;
    });
    assert(first != plan_.nodes.end() && "a layer with parameters is the first of its node");
    node.params = first->params;
    node.is_frozen = first->is_frozen;
    for (const int index : node.params) {
      plan_.params[index].last_node = static_cast<int>(plan_.nodes.size());
    }
  }

  /// Returns true if the loss allows targets without classes.
  bool takes_one_output() const {
    const LossKind* kind = loss_kinds().find(spec_.loss.type);
    return kind && takes(kind->targets, TargetKind::multi_hot);
  }

  bool is_frozen(const std::string& param) const {
    const FreezeSpec& freeze = spec_.train.freeze;
    const bool is_named =
        freeze.params.empty() ? !freeze.except.empty() : matches_any(freeze.params, param);
    return is_named && !matches_any(freeze.except, param);
  }

  void check_frozen() {
    const FreezeSpec& freeze = spec_.train.freeze;
    const std::size_t before = issues_.size();
    check_patterns("params", freeze.params, freeze.except.empty() ? "" : ".params");
    check_patterns("except", freeze.except, ".except");
    if (issues_.size() > before) return;  // the next checks need valid patterns
    const auto is_idle = [](const Param& param) { return param.is_frozen || !param.is_trained(); };
    if (std::all_of(plan_.params.begin(), plan_.params.end(), is_idle)) {
      issue(where_frozen("params", 0),
            "train.freeze: all parameters are frozen, so there is nothing to train");
    }
    if (!freeze.except.empty() &&
        std::none_of(plan_.params.begin(), plan_.params.end(),
                     [](const Param& param) { return param.is_frozen; })) {
      issue(where_frozen("except", 0),
            "train.freeze.except matches everything that would be frozen: remove train.freeze, or "
            "list fewer patterns");
    }
  }
  void check_patterns(const char* key, const std::vector<std::string>& patterns,
                      const char* suffix) {
    std::vector<std::string> names;
    for (const Param& param : plan_.params) names.push_back(param.name);
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      const std::string problem = problem_of_pattern(patterns[i], names);
      if (problem.empty()) continue;
      issue(where_frozen(key, i), fmt::format("train.freeze{}: {}", suffix, problem));
    }
  }
  Where where_frozen(const char* key, std::size_t i) const {
    for (const std::string& path :
         {fmt::format("train.freeze.{}.{}", key, i), fmt::format("train.freeze.{}", key),
          std::string("train.freeze")}) {
      const auto found = spec_.origins.find(path);
      if (found != spec_.origins.end()) return found->second;
    }
    return {};
  }

  struct Issue {
    Where where;
    std::string text;
  };

  const TrainSpec& spec_;
  Plan plan_;
  std::optional<ActivationShape> input_;
  std::vector<Draft> drafts_;
  std::vector<Issue> issues_;
};

}  // namespace

Plan make_plan(const TrainSpec& spec) {
  return PlanBuilder(spec).build();
}

}  // namespace dpt
