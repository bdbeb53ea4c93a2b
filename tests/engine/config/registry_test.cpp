// The list, the table and the lookups that all families of kinds share.
#include "engine/config/registry.h"

#include <doctest/doctest.h>

namespace dpt::testing {
namespace {

struct TreeOptions {
  std::int64_t leaves = 7;
};
struct TreeKind {
  const ObjectTable* table;
  int rings;
};

TreeKind oak_tree() {
  static const ObjectTable table = object_table<TreeOptions>(
      "oak", "Slow.", {field("leaves", &TreeOptions::leaves, "Their number.")});
  return {&table, 300};
}
TreeKind birch_tree() {
  static const ObjectTable table = object_table<TreeOptions>("birch", "Fast.", {});
  return {&table, 80};
}

TEST_CASE("a registry lists its kinds in order, and finds them by name") {
  const Registry<TreeKind> trees("tree", {oak_tree(), birch_tree()}, {{"Quercus", "oak"}}, "grows");
  std::vector<int> rings;
  for (const TreeKind& kind : trees) rings.push_back(kind.rings);
  CHECK(rings == std::vector<int>{300, 80});
  CHECK(trees.at("birch").rings == 80);
  CHECK(trees.find("oak") == &*trees.begin());
  CHECK(trees.find("Quercus") == nullptr);
  CHECK(trees.table().what == "tree");
  CHECK(trees.table().tag == "grows");
  CHECK(trees.table().alternatives ==
        std::vector<const ObjectTable*>{oak_tree().table, birch_tree().table});
  CHECK(trees.table().hints == TextPairs{{"Quercus", "oak"}});
  const Variant oak = trees.with_defaults("oak");
  CHECK(oak.type == "oak");
  CHECK(oak.table == oak_tree().table);
  CHECK(oak.as<TreeOptions>().leaves == 7);
}

}  // namespace
}  // namespace dpt::testing
