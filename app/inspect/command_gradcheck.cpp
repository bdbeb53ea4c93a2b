// dpt model gradcheck CONFIG: compares the gradients of a model with finite differences of its
// loss.
#include "app/inspect/command_gradcheck.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/base/catalog.h"
#include "app/base/command_support.h"
#include "app/base/console.h"
#include "engine/config/read_spec.h"
#include "engine/graph/make_plan.h"
#include "engine/training/gradient_check.h"
#include "kernels/base/json_text.h"

namespace dpt {
namespace {

/// Replaces the configured data by random images.
void use_random_data(TrainSpec& spec) {
  const std::int64_t classes = make_plan(spec).classes;
  for (const ObjectTable* table : catalog().datasets.alternatives) {
    if (table->name != "synthetic") continue;
    const std::shared_ptr<void> made = table->make();
    for (const Field& field : table->fields) {
      if (field.name == "classes") field.set(made.get(), classes);
    }
    spec.data.dataset = {table->name, spec.data.dataset.where, table, made};
    spec.data.val_split = {};
  }
}

std::string line_of(const CheckedTensor& checked, std::size_t width) {
  return fmt::format("{:<{}}  {:>10}  {:>14}  {}\n", checked.parameter, width, checked.directions,
                     checked.directions > 0 ? fmt::format("{:.1e}", checked.worst) : "-",
                     name_of(checked.verdict));
}

}  // namespace

int run_model_gradcheck(const GradcheckOptions& options) {
  std::vector<std::string> overrides = with_devices(options.overrides, options.device);
  // Losses of lower precision are too coarse for finite differences.
  overrides.emplace_back("train.precision=fp32");
  overrides.emplace_back("device_weights=auto");
  TrainSpec spec = load_spec(catalog(), options.config, overrides);
  if (options.random) use_random_data(spec);
  const Job job = load_job(std::move(spec));
  const std::int64_t most = job.data.splits.train.size();
  const std::int64_t samples =
      options.samples > 0 ? options.samples : std::min<std::int64_t>(8, most);
  if (options.samples > most) {
    fail(ErrorKind::usage,
         "--samples: expected at most {} (the number of training samples), found {}", most,
         options.samples);
  }
  std::size_t width = sizeof("parameter") - 1;
  for (const Param& param : job.model.plan.params) width = std::max(width, param.name.size());
  if (!options.json) {
    fmt::print("{:<{}}  {:>10}  {:>14}  result\n", "parameter", width, "directions",
               "relative error");
  }
  const std::vector<CheckedTensor> all = check_gradients(
      job, job.placement.devices.front(), samples, [&](const CheckedTensor& checked) {
        if (options.json) return;
        fmt::print("{}", line_of(checked, width));
        std::fflush(stdout);
      });
  std::vector<std::string> wrong;
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const CheckedTensor& checked : all) {
    tensors.push_back(
        {{"layer", checked.layer},
         {"parameter", checked.parameter},
         {"directions", checked.directions},
         {"contradicting", checked.contradicting},
         {"relative_error", checked.directions > 0 ? nlohmann::ordered_json(checked.worst)
                                                   : nlohmann::ordered_json()},
         {"result", name_of(checked.verdict)}});
    if (checked.verdict == GradientVerdict::differs) {
      wrong.push_back(fmt::format("'{}' ({})", checked.layer, checked.parameter));
    }
  }
  if (options.json) {
    fmt::print("{}\n", json_text(nlohmann::ordered_json{{"tensors", tensors}}, 2));
  }
  if (wrong.empty()) return 0;
  say(
      fmt::format("error: the gradient differs from the slope of the loss in layer {}. This is a "
                  "bug in dpt: please report it with the config",
                  fmt::join(wrong, ", ")));
  return 1;
}

}  // namespace dpt
