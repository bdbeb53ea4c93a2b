// A run that starts from a file of torch.save.
#include <doctest/doctest.h>

#include "engine/checkpoints/weights_file.h"
#include "tests/engine/checkpoints/files.h"
#include "tests/engine/checkpoints/small_plan.h"
#include "tests/support/torch_archive.h"

namespace dpt {
namespace {

using namespace testing::pickled;
using testing::PickledTensor;

TEST_CASE("a run starts from a torch file, and the report names the dictionary") {
  const TempDir folder;
  const std::string path = folder.file("w.pth");
  const Plan plan = small_plan();
  // The convolution's weights are stored with the input channels last.
  const PickledTensor conv{{2, 3, 2, 2}, {12, 1, 6, 3}, "w", 24};
  const PickledTensor bias{{2}, {1}, "0", 12, 4};
  const PickledTensor fc{{3, 12}, {0, 1}, "0", 12};
  const std::string state = ordered(
      {{"conv1.weight", conv.text()}, {"conv1.bias", bias.text()}, {"fc1.weight", fc.text()}});
  const std::string both =
      dictionary({{"ema", state}, {"state_dict", ordered({{"x", bias.text()}})}});
  write_all_text(
      path, testing::torch_archive(testing::pickle(both),
                                   {{"0", testing::counted(12)}, {"w", testing::counted(24)}}));
  WeightsSpec spec = weights_of(path);
  spec.key = "ema";
  std::vector<float> flat(static_cast<std::size_t>(plan.param_floats));
  const WeightsReport report = load_weights(spec, plan, nullptr, flat.data());
  CHECK(report.loaded.size() == 3);
  CHECK(report.key == "ema");
  CHECK(report.other_keys == std::vector<std::string>{"state_dict"});
  // The tensor is stored in dpt's own layout.
  for (int i = 0; i < 24; ++i) CHECK(flat[i] == static_cast<float>(i));
  CHECK(flat[plan.params[1].offset] == 4);
  spec.key.reset();
  CHECK(load_weights(spec, plan, nullptr, flat.data()).left_over == std::vector<std::string>{"x"});

  spec.file = folder.file("w.safetensors");
  write_safetensors(spec.file, {}, {});
  spec.key = "ema";
  CHECK(error_of([&] { load_weights(spec, plan, nullptr, flat.data()); }, spec.file) ==
        "F: weights.key: expected a PyTorch file, which may hold several dictionaries, found a "
        "safetensors file: remove the key");
}

}  // namespace
}  // namespace dpt
