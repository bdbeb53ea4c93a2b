#include "app/base/zoo_plan.h"

#include <fmt/format.h>

#include "app/base/catalog.h"
#include "engine/config/read_spec.h"
#include "engine/graph/make_plan.h"

namespace dpt {

Plan zoo_plan(const ZooInput& network, std::int64_t batch, const std::string& precision) {
  const std::string config = fmt::format(
      "data: {{dataset: synthetic, batch_size: {}}}\noptimizer: {{type: SGD, lr: 0.1}}\n"
      "train: {{epochs: 1, precision: {}}}\nmodel: {{zoo: {}, input: {}, classes: 10}}\n",
      batch, precision, network.name, network.input);
  return make_plan(load_spec_text(catalog(), config, network.name));
}

}  // namespace dpt
