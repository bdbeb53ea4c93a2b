// The values that processes of a world compare, and the devices that each of them gets.
#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>

#include "engine/processes/facts.h"
#include "engine/processes/process_devices.h"
#include "engine/processes/world.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

TEST_CASE("A fact that differs is named with both ranks, hosts and values") {
  const Facts facts = {{"seed", "1"}, {"train.precision", "fp32"}};
  Facts other = facts;
  other[1].second = "bf16";
  CHECK(difference_of_facts({facts, facts, facts}, {"a", "b", "c"}) == "");
  const std::string text = difference_of_facts({facts, facts, other}, {"a", "b", "c"});
  for (const char* part : {"rank 2 (c)", "rank 0 (a)", "train.precision", "\"fp32\"", "\"bf16\""}) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  }
  const std::string unlike = difference_of_facts({facts, {{"seed", "1"}}}, {"a", "b"});
  CHECK(unlike.find("run the same dpt") != std::string::npos);
}

TEST_CASE("Of a config, the fields that differ are named; a process' own fields may") {
  const auto with = [](const std::string& config) { return Facts{{"the config", config}}; };
  const std::string first = "version: 1\ndata:\n  root: /a\n  batch_size: 8\ndevices: [cpu]\n";
  const std::string moved = "version: 1\ndata:\n  root: /b\n  batch_size: 8\ndevices: [cpu, cpu]\n";
  const std::string other = "version: 1\ndata:\n  root: /a\n  batch_size: 9\ndevices: [cpu]\n";
  CHECK(difference_of_facts({with(first), with(moved)}, {"a", "b"}) == "");
  const std::string text = difference_of_facts({with(first), with(other)}, {"a", "b"});
  CAPTURE(text);
  CHECK(text.find("data.batch_size: 8 -> 9") != std::string::npos);
}

TEST_CASE("Of a config, the order of named layers is compared, in blocks too") {
  const auto with = [](const std::string& layers) {
    return Facts{{"the config", "model:\n  layers:\n" + layers + "devices: [cpu]\n"}};
  };
  const std::string c = "    - {type: ReLU, name: c}\n", r = "    - {type: ReLU, name: r}\n";
  const std::string text = difference_of_facts({with(c + r), with(r + c)}, {"a", "b"});
  CAPTURE(text);
  CHECK(text.find("model.layers: the order differs: c, r -> r, c") != std::string::npos);
  const auto block = [&](const char* items) {
    return with(std::string("    - {type: Sequential, name: b, layers: [") + items + "]}\n");
  };
  const std::string inside = difference_of_facts(
      {block("{name: c}, {name: r}"), block("{name: r}, {name: c}")}, {"a", "b"});
  CHECK(inside.find("model.layers.b.layers: the order differs: c, r -> r, c") != std::string::npos);
}

TEST_CASE("Processes of a machine share its cores, unless their launcher has bound them") {
  const int machine = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  World world;
  world.local_size = 2;
  CHECK(own_part_of_cores(machine, world) == (machine + 1) / 2);
  world.local_rank = 1;
  CHECK(own_part_of_cores(machine, world) == std::max(1, machine / 2));
  // The process already sees only its own share of the cores and must not divide it again.
  world.local_size = machine;
  CHECK(own_part_of_cores(1, world) == 1);
  // There are more processes than cores.
  world.local_size = 4 * machine;
  world.local_rank = 4 * machine - 1;
  CHECK(own_part_of_cores(machine, world) == 1);
}

TEST_CASE("A list of devices is each process' own") {
  World world;
  world.local_size = world.size = 3;
  CHECK(devices_of_process({"cpu", "cpu:2"}, world).size() == 2);
}

}  // namespace
}  // namespace dpt
