#include <nlohmann/json.hpp>

#include "engine/graph/make_plan.h"
#include "engine/graph/memory_schedule.h"
#include "engine/graph/plan.h"
#include "engine/graph/summary.h"
#include "tests/support/model.h"

namespace dpt::testing {
namespace {

TEST_CASE("the summary of LeNet, to the letter") {
  TrainSpec spec = lenet_spec();
  spec.name = "lenet-fashion-mnist";
  CHECK(summary_text(spec, make_plan(spec), 2, 1) ==
        R"(lenet-fashion-mnist: input 1x28x28, 10 classes, fp32

layer  type       detail           output  parameters  FLOP forward  FLOP backward  activation
conv1  Conv2d     3x3, stride 1  20x26x26         200       243.4 k        243.4 k       fused
1      ReLU                      20x26x26           -             -              -       fused
2      AvgPool2d  2x2, stride 2  20x13x13           -             -              -    13.2 KiB
conv2  Conv2d     5x5, stride 1    50x9x9      25,050        4.05 M         8.10 M       fused
4      ReLU                        50x9x9           -             -              -       fused
5      AvgPool2d  2x2, stride 2    50x4x4           -             -              -     3.1 KiB
6      Flatten                        800           -             -              -        view
fc1    Linear                         128     102,528       204.8 k        409.6 k       fused
8      ReLU                           128           -             -              -       512 B
fc2    Linear                          10       1,290        2.56 k         5.12 k        40 B
total                                         129,068        4.50 M         8.76 M    16.9 KiB

Per image: 13.3 MFLOP forward and backward (2 per multiply-add); sizes of activations exclude their gradients.
Per replica (128 of 256 images on 2 replicas, 128 at once): parameters 504.4 KiB, gradients 504.5 KiB, optimizer 504.4 KiB, activations 4.5 MiB: 5.9 MiB in total for training, excluding the kernels' workspaces, the data and evaluation.
)");
}

TEST_CASE("activations take the bytes of their outputs, views and layers in place none") {
  const Plan plan = make_plan(ModelSpecBuilder({8, 1, 1})
                                  .add("Flatten")
                                  .linear("a", 4)
                                  .linear("b", 2)
                                  .add("Dropout")
                                  .linear("c", 3)
                                  .spec());
  std::vector<std::int64_t> bytes;
  for (const LayerRow& row : plan.rows) bytes.push_back(row.activation_bytes);
  CHECK(bytes == std::vector<std::int64_t>{0, 16, 8, 0, 12});
}

TEST_CASE("the summary as JSON") {
  const TrainSpec spec = lenet_spec();
  const auto json = nlohmann::json::parse(summary_json(spec, make_plan(spec), 3, 2));
  CHECK(json["name"] == "net");
  CHECK(json["parameters"] == 129068);
  CHECK(json["classes"] == 10);
  CHECK(json["forward_flops"] == 4500720);
  CHECK(json["backward_flops"] == 8758080);
  CHECK(json["replicas"] == 3);
  CHECK(json["batch_per_replica"] == 86);
  REQUIRE(json["layers"].size() == 10);
  CHECK(json["layers"][0]["output"] == nlohmann::json({20, 26, 26}));
  CHECK(json["layers"][0]["fused_into"].is_null());
  CHECK(json["layers"][1]["fused_into"] == "conv1");
  CHECK(json["layers"][9]["output"] == nlohmann::json::array({10}));
  CHECK(json["tensors"][0]["name"] == "conv1.weight");
  CHECK(json["tensors"][0]["shape"] == nlohmann::json({20, 1, 3, 3}));
  const auto memory = json["memory_per_replica"];
  CHECK(memory["optimizer"] == 2 * memory["parameters"].get<int>());
  CHECK(memory["total"] == memory["parameters"].get<int>() + memory["gradients"].get<int>() +
                               memory["optimizer"].get<int>() + memory["activations"].get<int>());
  CHECK(nlohmann::json::parse(
            summary_json(spec, make_plan(spec), 1))["memory_per_replica"]["optimizer"]
            .is_null());
}

TEST_CASE("shared weights are counted once, and the summary says whose they are") {
  const TrainSpec spec = ModelSpecBuilder({4, 6, 6})
                             .conv("conv1", 4, 3)
                             .conv("conv2", 4, 3)
                             .shares("conv1")
                             .add("Flatten")
                             .linear("fc", 10)
                             .spec();
  const Plan plan = make_plan(spec);
  const std::string text = summary_text(spec, plan, 1, 1);
  CHECK(text.find("\nconv2  Conv2d   3x3, stride 1, shares conv1   4x2x2           -  ") !=
        std::string::npos);
  CHECK(text.find(" 318  ", text.find("\ntotal ")) != std::string::npos);
  const auto json = nlohmann::json::parse(summary_json(spec, plan, 1, 1));
  CHECK(json["layers"][0]["shares"].is_null());
  CHECK(json["layers"][1]["shares"] == "conv1");
  CHECK(json["layers"][1]["parameters"] == 0);
  CHECK(json["layers"][1]["forward_flops"].get<double>() > 0);
  CHECK(json["tensors"].size() == 4);
  CHECK(json["memory_per_replica"]["parameters"] == (144 + 16 + 160 + 16) * 4);
}

TEST_CASE("the memory is that of the largest micro-batch") {
  TrainSpec spec = lenet_spec();
  const auto at_once = [&](std::int64_t batch, int replicas, std::int64_t samples,
                           std::int64_t limit = 256) {
    spec.data.batch_size = batch;
    return step_size(spec, replicas, samples, limit).at_once;
  };
  CHECK(at_once(256, 2, 60000) == 128);
  CHECK(at_once(256, 3, 60000) == 86);
  CHECK(at_once(1024, 1, 60000) == 256);
  CHECK(at_once(300, 1, 60000) == 150);  // two micro-batches, evenly
  CHECK(at_once(300, 1, 60000, 16384) == 300);
  CHECK(at_once(1 << 30, 1, 183) == 183);
  CHECK(at_once(1 << 30, 2, 183) == 92);
  CHECK(at_once(1 << 30, 300, 183) == 1);
  spec.train.shards = 8;
  CHECK(at_once(256, 2, 60000) == 32);

  spec.train.shards = 0;
  spec.data.batch_size = 1 << 30;
  const Plan plan = make_plan(spec);
  const StepSize step = step_size(spec, 2, 183, 64);
  CHECK(summary_text(spec, plan, 2, 0, step).find("(92 of 183 images on 2 replicas, 46 at once)") !=
        std::string::npos);
  const auto json = nlohmann::json::parse(summary_json(spec, plan, 2, 0, step));
  CHECK(json["batch_per_replica"] == 92);
  CHECK(json["samples_at_once"] == 46);
  CHECK(json["memory_per_replica"]["activations"] == estimate_memory(plan, 46, 0).activations);
}

TEST_CASE("the summary says that an unknown optimizer is not counted") {
  const TrainSpec spec = lenet_spec();
  CHECK(summary_text(spec, make_plan(spec), 1).find("optimizer not counted") != std::string::npos);
  CHECK(summary_text(spec, make_plan(spec), 1).find("on 1 replica,") != std::string::npos);
  // The total leaves out an unknown optimizer too.
  const auto sum = [&](std::optional<int> buffers) {
    const std::string text = summary_text(spec, make_plan(spec), 1, buffers);
    return text.substr(text.rfind("activations "));
  };
  CHECK(sum({}) == sum(0));
  CHECK(sum({}) != sum(1));
  const auto json_sum = [&](std::optional<int> buffers) {
    return nlohmann::json::parse(
        summary_json(spec, make_plan(spec), 1, buffers))["memory_per_replica"]["total"];
  };
  CHECK(json_sum({}) == json_sum(0));
  CHECK(json_sum({}) != json_sum(1));
}

TEST_CASE("numbers in the summary that are too large for the largest unit") {
  const auto summary = [](const ModelSpecBuilder& model) {
    return summary_text(model.spec(), make_plan(model.spec()), 1, 0);
  };
  CHECK(summary(ModelSpecBuilder({1024, 256, 256})
                    .add("Conv2d", {{"out_channels", integer(1024)},
                                    {"kernel_size", square(101)},
                                    {"padding", square(50)}})
                    .add("Flatten")
                    .linear("fc", 2))
            .find("  1402.0 T  ") != std::string::npos);
  // The total is four times 2^36 weights.
  CHECK(summary(ModelSpecBuilder({65536, 1, 1})
                    .add("Flatten")
                    .linear("a", 1 << 20)
                    .linear("b", 1 << 16)
                    .linear("c", 1 << 20)
                    .linear("d", 1 << 16))
            .find("parameters 1024.0 GiB, gradients 1024.0 GiB, ") != std::string::npos);
}

TEST_CASE("numbers in the summary, at the borders of their units") {
  // Returns the cells for Flatten and one Linear with `out` features of `in` pixels.
  const auto cells = [](std::int64_t in, std::int64_t out) {
    const TrainSpec spec = ModelSpecBuilder({in, 1, 1}).add("Flatten").linear("fc", out).spec();
    const std::string text = summary_text(spec, make_plan(spec), 1, 0);
    const std::size_t begin = text.find("\nfc ") + 1;
    std::string line = text.substr(begin, text.find('\n', begin) - begin);
    // Columns are at least two spaces apart.
    for (std::size_t at; (at = line.find("   ")) != std::string::npos;) line.erase(at, 1);
    return line;
  };
  CHECK(cells(10, 49) == "fc  Linear  49  539  980  980  196 B");
  CHECK(cells(10, 50) == "fc  Linear  50  550  1.00 k  1.00 k  200 B");
  CHECK(cells(10, 499) == "fc  Linear  499  5,489  9.98 k  9.98 k  1.9 KiB");
  CHECK(cells(10, 500) == "fc  Linear  500  5,500  10.0 k  10.0 k  2.0 KiB");
  CHECK(cells(1, 255) == "fc  Linear  255  510  510  510  1020 B");
  CHECK(cells(1, 256) == "fc  Linear  256  512  512  512  1.0 KiB");
  CHECK(cells(1, 262130) == "fc  Linear  262130  524,260  524.3 k  524.3 k  1023.9 KiB");
  CHECK(cells(1, 262143) == "fc  Linear  262143  524,286  524.3 k  524.3 k  1.0 MiB");
  CHECK(cells(1, 65536000) == "fc  Linear  65536000  131,072,000  131.1 M  131.1 M  250.0 MiB");
  CHECK(cells(50000, 10000) == "fc  Linear  10000  500,010,000  1.00 G  1.00 G  39.1 KiB");
  CHECK(cells(65536, 1 << 20) == "fc  Linear  1048576  68,720,525,312  137.4 G  137.4 G  4.0 MiB");
  CHECK(cells(250, (1 << 28)) ==
        "fc  Linear  268435456  67,377,299,456  134.2 G  134.2 G  1.0 GiB");
}

TEST_CASE("where a layer's output lies: in memory of its own, over its input, in a view, nowhere") {
  const TrainSpec spec = ModelSpecBuilder({1, 8, 8})
                             .add("MaxPool2d", {{"kernel_size", square(2)}})
                             .add("ReLU")
                             .add("Flatten")
                             .linear("fc", 3)
                             .spec();
  const std::string text = summary_text(spec, make_plan(spec), 2, 1);
  const auto ends = [&](const std::string& layer, const std::string& with) {
    const std::size_t begin = text.find("\n" + layer + " ") + 1;
    const std::string line = text.substr(begin, text.find('\n', begin) - begin);
    INFO(line);
    CHECK(line.ends_with(" " + with));
  };
  ends("0", "64 B");
  ends("1", "in place");
  ends("2", "view");
  ends("fc", "12 B");
  ends("total", "76 B");
  CHECK(text.find("\nPer image: 192 FLOP forward and backward") != std::string::npos);
  const auto json = nlohmann::json::parse(summary_json(spec, make_plan(spec), 2, 1));
  CHECK(json["input"] == nlohmann::json({1, 8, 8}));
  CHECK(json["precision"] == "fp32");
  CHECK(json["layers"][0]["activation_bytes"] == 64);
  CHECK(json["layers"][3]["parameters"] == 51);
  CHECK(json["layers"][3]["forward_flops"] == 96);
  CHECK(json["layers"][3]["backward_flops"] == 96);
  CHECK(json["layers"][3]["type"] == "Linear");
  CHECK(json["layers"][3]["detail"] == "");
}

}  // namespace
}  // namespace dpt::testing
