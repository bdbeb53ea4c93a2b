// The paths that completion offers for KEY=VALUE.
#include <doctest/doctest.h>

#include <algorithm>

#include "engine/config/config_paths.h"
#include "tests/engine/config/small_catalog.h"

using namespace dpt;
using dpt::testing::small_catalog;

TEST_CASE("config paths: fields, fields of kinds, and the words they may have") {
  const std::vector<ConfigPath> paths = config_paths(small_catalog());
  const auto find = [&](const std::string& path) {
    const auto found = std::find_if(paths.begin(), paths.end(),
                                    [&](const ConfigPath& one) { return one.path == path; });
    return found == paths.end() ? nullptr : &*found;
  };
  REQUIRE(find("train.epochs"));
  CHECK(find("train.epochs")->words.empty());
  REQUIRE(find("optimizer.lr"));
  REQUIRE(find("optimizer.type"));
  CHECK_FALSE(find("optimizer.type")->words.empty());
  REQUIRE(find("data.shuffle"));
  CHECK(find("data.shuffle")->words == std::vector<std::string>{"false", "true"});
  // This key selects the kind of its mapping.
  REQUIRE(find("data.dataset"));
  CHECK_FALSE(find("data.dataset")->words.empty());
  // Users choose the names of layers, so completion offers none.
  CHECK_FALSE(find("model.layers"));
  CHECK(std::is_sorted(paths.begin(), paths.end(),
                       [](const ConfigPath& a, const ConfigPath& b) { return a.path < b.path; }));
}
