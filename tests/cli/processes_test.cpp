// Runs of several processes, as far as the command line knows of them.
#include <nlohmann/json.hpp>

#include "tests/cli/workplace.h"

namespace dpt::testing {
namespace {

using nlohmann::json;

/// What is set in the program's environment.
using Variables = std::vector<std::pair<const char*, const char*>>;

Finished run_with(const Workplace& w, const Variables& variables,
                  const std::vector<std::string>& arguments) {
  return run_dpt(arguments, w.dir.path(), [&] {
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  });
}

TEST_CASE("dpt devices says which process of how many it is") {
  const Workplace w;
  const Variables torchrun = {{"RANK", "1"},
                              {"WORLD_SIZE", "4"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "node0"},
                              {"MASTER_PORT", "29500"},
                              {"TORCHELASTIC_RUN_ID", "x"},
                              {"DPT_TOKEN", "secret"}};
  const Finished text = run_with(w, torchrun, {"devices"});
  CHECK(text.exit_code == 0);
  check_contains(text.out, "\nworld   rank 1 of 4 (torchrun), local rank 1 of 2 on host ");
  check_contains(text.out, ", rank 0 at node0:29501\n");
  const Finished data = run_with(w, torchrun, {"devices", "--json"});
  CHECK_FALSE(contains(data.out, "secret"));
  const json world = json::parse(data.out)["world"];
  CHECK(world["rank"] == 1);
  CHECK(world["size"] == 4);
  CHECK(world["local_rank"] == 1);
  CHECK(world["local_size"] == 2);
  CHECK(world["launcher"] == "torchrun");
  CHECK(world["coordinator"] == "node0");
  CHECK(world["ports"][0] == 29501);

  const Finished half = run_with(w, {{"RANK", "1"}}, {"devices"});
  CHECK(half.exit_code == 0);
  check_contains(half.out, "\nworld   refused: RANK and WORLD_SIZE: found RANK=1 in the");
  const json refused =
      json::parse(run_with(w, {{"RANK", "1"}}, {"devices", "--json"}).out)["world"];
  check_contains(refused["refused"], "found RANK=1 in the environment, but not WORLD_SIZE");
}

}  // namespace
}  // namespace dpt::testing
