// Checks and conversion of the fields that choose initial values.
#include "engine/layers/init_options.h"
#include "engine/layers/param_spec.h"

namespace dpt {
namespace {

InitSpec spec_of(InitKind kind, const std::optional<double>& value,
                 const std::optional<double>& stddev) {
  return {kind, value.value_or(0.0), stddev.value_or(1.0)};
}

std::string check_one(const std::string& field, InitKind kind, bool has_value, bool has_stddev) {
  if (kind == InitKind::constant && !has_value) {
    return fmt::format("{0}: constant needs {0}_value", field);
  }
  if (has_value && kind != InitKind::constant && kind != InitKind::normal) {
    return fmt::format(
        "{0}_value has no effect with {0}: {1}; it applies to constant and normal only", field,
        name_of(kind));
  }
  if (has_stddev && kind != InitKind::normal) {
    return fmt::format("{0}_std has no effect with {0}: {1}; it applies to normal only", field,
                       name_of(kind));
  }
  return {};
}

}  // namespace

std::vector<ParamSpec> InitOptions::params(ParamSpec weight, std::int64_t outputs) const {
  weight.suffix = "weight";
  weight.init = spec_of(weight_init, weight_init_value, weight_init_std);
  if (!bias) return {weight};
  ParamSpec added;
  added.suffix = "bias";
  added.file_shape = {outputs};
  added.fan_in = weight.fan_in;
  added.fan_out = weight.fan_out;
  added.init = spec_of(bias_init, bias_init_value, bias_init_std);
  return {weight, added};
}

std::string check_init(const InitOptions& o) {
  std::string problem = check_one("weight_init", o.weight_init, o.weight_init_value.has_value(),
                                  o.weight_init_std.has_value());
  if (!problem.empty()) return problem;
  if (!o.bias && (o.bias_init != InitKind::pytorch || o.bias_init_value || o.bias_init_std)) {
    return "bias_init has no effect with bias: false";
  }
  return check_one("bias_init", o.bias_init, o.bias_init_value.has_value(),
                   o.bias_init_std.has_value());
}

}  // namespace dpt
