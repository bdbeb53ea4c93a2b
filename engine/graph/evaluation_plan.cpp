#include "engine/graph/evaluation_plan.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <utility>

#include "engine/layers/param_spec.h"
#include "kernels/base/align.h"

namespace dpt {
namespace {

class EvaluationPlanBuilder {
 public:
  explicit EvaluationPlanBuilder(const Plan& training) : training_(training) {
    result_.plan = training;
    result_.plan.nodes.clear();
  }

  EvaluationPlan build() {
    is_taken_.assign(training_.nodes.size(), false);
    for (std::size_t i = 0; i < training_.nodes.size(); ++i) {
      if (is_taken_[i]) continue;
      Node node = training_.nodes[i];
      if (const Node* norm = only_reader(node.output)) fold(node, *norm);
      result_.plan.nodes.push_back(std::move(node));
    }
    return std::move(result_);
  }

 private:
  /// Returns the only node that reads a value, if that node has no other input; otherwise null.
  const Node* only_reader(int value) const {
    const Node* found = nullptr;
    for (const Node& node : training_.nodes) {
      if (std::find(node.inputs.begin(), node.inputs.end(), value) == node.inputs.end()) continue;
      if (found) return nullptr;
      found = &node;
    }
    return found && found->inputs.size() == 1 ? found : nullptr;
  }

  void take(Node& node, std::shared_ptr<const Layer> layer, const Node& next) {
    node.layer = std::move(layer);
    node.output = next.output;
    node.source_layers.insert(node.source_layers.end(), next.source_layers.begin(),
                              next.source_layers.end());
    is_taken_[&next - training_.nodes.data()] = true;
  }

  void fold(Node& node, const Node& norm) {
    const std::optional<RunningNorm> facts = norm.layer->running_norm();
    if (!facts) return;
    std::shared_ptr<const Layer> folded = node.layer->fold(*facts);
    if (!folded) return;
    fold_params(node, norm, *folded, facts->eps);
    take(node, std::move(folded), norm);
    for (const Node* next = only_reader(node.output); next; next = only_reader(node.output)) {
      std::shared_ptr<const Layer> fused =
          next->params.empty() ? node.layer->fuse(*next->layer) : nullptr;
      if (!fused) break;
      take(node, std::move(fused), *next);
    }
  }

  std::int64_t place_of(const Node& node, const char* suffix) const {
    for (const int index : node.params) {
      const Param& param = training_.params[index];
      if (param.spec.suffix == suffix) return param.offset;
    }
    return NormFold::kNone;
  }

  void fold_params(Node& node, const Node& norm, const Layer& folded, float eps) {
    NormFold fold;
    fold.weight = place_of(node, "weight");
    fold.bias = place_of(node, "bias");
    fold.gamma = place_of(norm, "weight");
    fold.beta = place_of(norm, "bias");
    fold.running_mean = place_of(norm, "running_mean");
    fold.running_var = place_of(norm, "running_var");
    fold.eps = eps;
    node.params.clear();
    for (ParamSpec& spec : folded.params(training_.shapes_into(node))) {
      Param param;
      param.name = node.name + "." + spec.suffix;
      param.count = 1;
      for (const std::int64_t size : spec.file_shape) param.count *= size;
      param.offset = result_.folded_floats;
      param.node = param.last_node = static_cast<int>(result_.plan.nodes.size());
      param.is_folded = true;
      assert(spec.suffix == "weight" || spec.suffix == "bias");
      (spec.suffix == "weight" ? fold.to_weight : fold.to_bias) = param.offset;
      if (spec.suffix == "bias") fold.channels = param.count;
      param.spec = std::move(spec);
      result_.folded_floats += align_up(param.count, kAlignFloats);
      node.params.push_back(static_cast<int>(result_.plan.params.size()));
      result_.plan.params.push_back(std::move(param));
    }
    const Param& weight = result_.plan.params[node.params.front()];
    fold.row = weight.count / fold.channels;
    result_.folds.push_back(fold);
  }

  const Plan& training_;
  EvaluationPlan result_;
  std::vector<bool> is_taken_;
};

}  // namespace

EvaluationPlan make_evaluation_plan(const Plan& training) {
  return EvaluationPlanBuilder(training).build();
}

}  // namespace dpt
