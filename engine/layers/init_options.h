// Fields that choose the initial values of a layer's weight and bias, shared by all layers that
// have them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/layers/layer.h"
#include "engine/layers/param_spec.h"

namespace dpt {

/// Base of the options of a layer with a weight and a bias.
struct InitOptions {
  bool bias = true;
  InitKind weight_init = InitKind::pytorch;
  std::optional<double> weight_init_value, weight_init_std;
  InitKind bias_init = InitKind::pytorch;
  std::optional<double> bias_init_value, bias_init_std;

  /// Returns the parameter "weight" and, if `bias` is set, "bias". The bias has `outputs` values
  /// and the same fans as the weight. REQUIRES: the shape, layout and fans of `weight` are set.
  std::vector<ParamSpec> params(ParamSpec weight, std::int64_t outputs) const;
};

/// Returns a message if fields contradict each other, otherwise an empty string.
std::string check_init(const InitOptions& options);

/// Returns `table` with the rows of InitOptions appended; S is the options struct of the table.
template <class S>
ObjectTable with_init_fields(ObjectTable table) {
  using Number = std::optional<double>;
  Field rows[] = {field<S, bool>("bias", &S::bias, "Add a learnable bias."),
                  field<S, InitKind>("weight_init", &S::weight_init,
                                     "Initialisation of the weight, named as in torch.nn.init; "
                                     "default is PyTorch's U(-1/sqrt(fan_in), 1/sqrt(fan_in))."),
                  field<S, Number>("weight_init_value", &S::weight_init_value,
                                   "constant: the value. normal: the mean (0 if not given)."),
                  field<S, Number>("weight_init_std", &S::weight_init_std,
                                   "normal: the standard deviation (1 if not given).")
                      .at_least(0),
                  field<S, InitKind>(
                      "bias_init", &S::bias_init,
                      "Initialisation of the bias; default is PyTorch's, with the weight's fan_in.")
                      .only({InitKind::pytorch, InitKind::normal, InitKind::constant}),
                  field<S, Number>("bias_init_value", &S::bias_init_value,
                                   "constant: the value. normal: the mean (0 if not given)."),
                  field<S, Number>("bias_init_std", &S::bias_init_std,
                                   "normal: the standard deviation (1 if not given).")
                      .at_least(0)};
  for (Field& row : rows) table.fields.push_back(std::move(row));
  return table;
}

}  // namespace dpt
