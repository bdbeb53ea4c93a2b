// log.layers: the 2-norm of each updated parameter and the 2-norm of its gradient.
#include <nlohmann/json.hpp>

#include "engine/measurements/kinds.h"

namespace dpt {

class LayerNorms final : public Measurement {
 public:
  LayerNorms(Backend& backend, const Job& job) : params_(job.model.plan.updated()) {
    std::vector<Range> ranges;
    for (const Param* param : params_) {
      ranges.push_back({param->offset, param->offset + param->count});
    }
    norms_ = backend.range_norms(ranges);
  }

  std::int64_t floats() const override { return 2 * static_cast<std::int64_t>(params_.size()); }

  void measure(DevPtr params, DevPtr gradients, DevPtr floats) override {
    norms_->run(params, floats);
    norms_->run(gradients, floats + params_.size() * sizeof(float));
  }

  void take(const StepResult&, std::span<const float> floats) override {
    values_.assign(floats.begin(), floats.end());
  }

  void log(Json& line) const override {
    if (values_.empty()) return;
    Json of_params, of_gradients;
    for (std::size_t i = 0; i < params_.size(); ++i) {
      of_params[params_[i]->name] = values_[i];
      of_gradients[params_[i]->name] = values_[params_.size() + i];
    }
    line["param_norms"] = std::move(of_params);
    line["grad_norms"] = std::move(of_gradients);
  }

 private:
  std::vector<const Param*> params_;
  std::unique_ptr<RangeNormsOp> norms_;
  std::vector<float> values_;  ///< norms of the parameters, then of their gradients
};

MeasurementKind layer_norms_measurement() {
  return {"layers", "Also log the 2-norm of each parameter and of its gradient.", false,
          &make_measurement<LayerNorms>};
}

}  // namespace dpt
