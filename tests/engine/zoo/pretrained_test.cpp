// Pretrained weights of the zoo's networks, with the names and shapes of timm's files as written by
// tests/golden/make_pretrained_names.py.
#include "engine/zoo/pretrained.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "app/base/catalog.h"
#include "engine/config/read_spec.h"
#include "engine/graph/make_plan.h"
#include "engine/graph/plan.h"
#include "tests/support/places.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

std::int64_t count_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// Replaces the longest prefix of `name` that is in the map, as the reader of weights does.
std::string renamed(const TextPairs& map, const std::string& name) {
  const std::pair<std::string, std::string>* longest = nullptr;
  for (const auto& entry : map) {
    if (!name.starts_with(entry.first)) continue;
    if (!longest || entry.first.size() > longest->first.size()) longest = &entry;
  }
  return longest ? longest->second + name.substr(longest->first.size()) : name;
}

}  // namespace

TEST_CASE("pretrained: each network's names and shapes lead to all of its tensors") {
  std::ifstream in(source_dir() + "/tests/golden/pretrained_names.json");
  const auto golden = nlohmann::json::parse(in);
  std::vector<std::string> networks;
  for (const std::string& network : pretrained_networks()) {
    CAPTURE(network);
    const PretrainedWeights* row = pretrained_weights(network);
    REQUIRE(row);
    REQUIRE(golden.contains(network));
    CHECK(golden[network]["file"] == row->file);
    CHECK(is_pretrained_file(row->file));
    const TrainSpec spec = load_spec_text(
        catalog(),
        "data: {dataset: synthetic, batch_size: 8}\noptimizer: {type: SGD, lr: 0.1}\n"
        "train: {epochs: 1}\nmodel: {zoo: " +
            network + ", input: [3, 224, 224], classes: 1000}\n",
        "test.yaml");
    std::map<std::string, std::vector<std::int64_t>> shapes;
    for (const Param& param : make_plan(spec).params) {
      shapes.emplace(param.name, param.spec.file_shape);
    }
    CHECK(golden[network]["tensors"].size() == shapes.size());
    for (const auto& tensor : golden[network]["tensors"]) {
      const std::string name = renamed(row->map, tensor[0]);
      CAPTURE(name);
      CHECK(name == tensor[2].get<std::string>());
      REQUIRE(shapes.contains(name));
      const std::vector<std::int64_t> shape = tensor[1];
      CHECK(count_of(shape) == count_of(shapes[name]));
      if (!shape.empty()) CHECK(shape[0] == shapes[name][0]);
    }
    for (const auto& [from, to] : row->map) {
      const std::string prefix = from;
      CAPTURE(prefix);
      const auto& tensors = golden[network]["tensors"];
      CHECK(std::any_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
        return tensor[0].template get<std::string>().starts_with(prefix);
      }));
    }
    networks.push_back(network);
  }
  CHECK(networks.size() == golden.size());
  CHECK(pretrained_weights("lenet") == nullptr);
  CHECK_FALSE(is_pretrained_file("hf://timm/resnet18.a1_in1k"));
}
