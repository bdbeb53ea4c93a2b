// The state_dict of a plan: the content of the file, and the entries that it must not have.
#include "engine/export/torch_state.h"

#include <doctest/doctest.h>

#include "app/base/catalog.h"
#include "engine/checkpoints/safetensors.h"
#include "engine/config/read_spec.h"
#include "engine/graph/layouts.h"
#include "engine/graph/make_plan.h"
#include "engine/layers/param_spec.h"
#include "tests/support/temp_dir.h"

using namespace dpt;
using namespace dpt::testing;

TEST_CASE("a state_dict holds all of the model's tensors in PyTorch's layouts, and nothing else") {
  const TrainSpec spec = load_spec_text(catalog(), R"(
data: {dataset: synthetic, batch_size: 8}
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 1}
model:
  input: [2, 3, 3]
  layers:
    - {type: Conv2d, name: conv, out_channels: 2, kernel_size: [1, 2]}
    - {type: BatchNorm2d, name: bn}
    - {type: Flatten}
    - {type: Linear, name: fc, out_features: 3}
)",
                                        "net.yaml");
  const Plan plan = make_plan(spec);
  std::vector<float> flat(static_cast<std::size_t>(plan.param_floats));
  for (const Param& param : plan.params) {
    std::vector<float> file(static_cast<std::size_t>(param.count));
    for (std::size_t i = 0; i < file.size(); ++i) file[i] = static_cast<float>(i + 1);
    if (param.spec.role == ParamRole::counter) file[0] = UpdateCounter::bits((1 << 24) + 1);
    from_file_layout(param, file.data(), flat.data() + param.offset);
  }
  ExportFacts facts;
  facts.version = "dpt 9";
  facts.run = "net";
  facts.step = 12;
  facts.weights = "ema";
  facts.classes = {"a", "b\"", "c"};
  facts.input = {2, 3, 3};
  facts.scale = 255.0F;
  facts.mean = {0.286F, 0.5F};
  facts.stddev = {0.353F, 0.25F};
  const TempDir dir;
  write_torch_state(dir.file("net.safetensors"), plan, flat, facts);

  const SafetensorsFile file = SafetensorsFile::open(dir.file("net.safetensors"));
  CHECK(file.check_integrity() == Integrity::absent);
  std::vector<std::string> names;
  for (const TensorEntry& entry : file.tensors()) names.push_back(entry.name);
  // Tensors of 8-byte values come first.
  CHECK(names == std::vector<std::string>{"bn.num_batches_tracked", "conv.weight", "conv.bias",
                                          "bn.weight", "bn.bias", "bn.running_mean",
                                          "bn.running_var", "fc.weight", "fc.bias"});
  const TensorEntry& counter = *file.find("bn.num_batches_tracked");
  CHECK(counter.dtype == "I64");
  CHECK(counter.shape.empty());
  CHECK(file.read_integers(counter) == std::vector<std::int64_t>{(1 << 24) + 1});
  for (const char* name : {"conv.weight", "fc.weight"}) {
    CAPTURE(name);
    const TensorEntry& weight = *file.find(name);
    const std::vector<float> values = file.read_floats(weight);
    CHECK(weight.shape == (name[0] == 'c' ? std::vector<std::int64_t>{2, 2, 1, 2}
                                          : std::vector<std::int64_t>{3, 12}));
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == static_cast<float>(i + 1));
  }
  const Metadata& metadata = file.metadata();
  CHECK(metadata.at("format") == "pt");
  CHECK(metadata.at("exported_by") == "dpt 9");
  CHECK(metadata.at("weights") == "ema");
  CHECK(metadata.at("step") == "12");
  CHECK(metadata.at("classes") == R"(["a","b\"","c"])");
  CHECK(metadata.at("mean") == "[0.286, 0.5]");
  CHECK(metadata.at("std") == "[0.353, 0.25]");
  CHECK(metadata.at("scale") == "255");
  // A key with this prefix would mark the file as one with a checksum.
  for (const auto& [key, value] : metadata) CHECK_FALSE(key.starts_with("dpt."));
}
