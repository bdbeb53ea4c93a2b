// Tests with GPUs that fail on request. Only emulated GPUs can do this.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>

#include "emulation/control.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/job/starting_point.h"
#include "kernels/base/lost_device.h"
#include "tests/engine/training/run.h"

using namespace dpt;
using namespace dpt::testing;

TEST_CASE("a GPU that fails ends the run within seconds, and names call, replica and device") {
  const Job job = small_job(small_config(kSgdWithoutDecay, epochs_on("cuda:0")),
                            {"devices=[cuda:0,cuda:1]", "train.shards=8"});
  const TempDir whole;
  const FinalState undisturbed = train_small(job, whole.path());
  for (const char* failure :
       {"cudaGraphLaunch:9:cudaErrorLaunchFailure", "cudaMemcpyAsync:40:cudaErrorECCUncorrectable",
        "kernel:300:cudaErrorIllegalAddress", "cudaStreamQuery:60:cudaErrorLaunchFailure"}) {
    CAPTURE(failure);
    const TempDir folder;
    const auto begin = std::chrono::steady_clock::now();
    std::string text;
    {
      emulation::fail(failure);
      try {
        train_small(job, folder.path());
      } catch (const Error& error) {
        text = error.what();
        CHECK((error.kind() == ErrorKind::device || error.kind() == ErrorKind::peer));
      }
    }
    INFO(text);
    CHECK(text.find("replica ") != std::string::npos);
    CHECK(text.find("cuda:") != std::string::npos);
    CHECK(text.find(" failed: ") != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
    emulation::clear_failures();
    emulation::set_devices(2);
    // The earlier checkpoint is good: the run resumes from it and reaches the bits of an
    // undisturbed run.
    const std::string newest =
        newest_good_checkpoint(folder.path() + "/checkpoints", [](const std::string&) {});
    REQUIRE(!newest.empty());
    const StartingPoint start = start_from_checkpoint(job, newest);
    CHECK((train_small(job, folder.path(), &start) == undisturbed));
  }
}

TEST_CASE("a GPU that hangs ends the run, which names the GPU and can be resumed") {
  for (const char* devices : {"devices=[cuda:0]", "devices=[cuda:0,cuda:1]"}) {
    CAPTURE(devices);
    const Job job =
        small_job(small_config(kSgdWithoutDecay, epochs_on("cuda:0")), {devices, "train.shards=8"});
    const TempDir whole;
    const FinalState undisturbed = train_small(job, whole.path());
    const Job hasty = small_job(small_config(kSgdWithoutDecay, epochs_on("cuda:0")),
                                {devices, "train.shards=8", "train.stall_timeout=1"});
    const TempDir folder;
    const std::string last_gpu = job.placement.devices.back().text();
    emulation::fail("kernel@" + last_gpu.substr(last_gpu.size() - 1) + ":300:hang");
    std::string text;
    try {
      train_small(hasty, folder.path());
    } catch (const LostDevice& error) {
      text = error.what();
      CHECK(error.kind() == ErrorKind::peer);  // exit code 6
    } catch (const Error& error) {
      text = error.what();
    }
    CHECK(is_device_lost());
    INFO(text);
    CHECK(text.find(" hangs or was lost") != std::string::npos);
    if (job.placement.devices.size() == 1) CHECK(text.find("cuda:0 (") == 0);
    emulation::clear_failures();
    emulation::set_devices(2);
    set_device_lost(false);
    const std::string newest =
        newest_good_checkpoint(folder.path() + "/checkpoints", [](const std::string&) {});
    REQUIRE(!newest.empty());
    const StartingPoint start = start_from_checkpoint(job, newest);
    CHECK((train_small(job, folder.path(), &start) == undisturbed));
  }
}

TEST_CASE("a kernel that cannot be launched is reported with its layer") {
  emulation::set_devices(1);
  const TempDir folder;
  const Job job = small_job(small_config(kSgdWithoutDecay), {"devices=[cuda:0]", "train.shards=8"});
  std::string text;
  // Exact mode times no plans: the first launch reads the clock, the second is the input kernel,
  // the third begins the first layer.
  emulation::fail("cudaLaunchKernelEx:3:cudaErrorLaunchOutOfResources");
  try {
    train_small(job, folder.path());
  } catch (const Error& error) {
    text = error.what();
  }
  emulation::clear_failures();
  emulation::set_devices(2);
  INFO(text);
  CHECK(text.find("layer 'conv1', forward: cuda:0: a kernel launch failed: ") == 0);
}

TEST_CASE("a batch that does not fit on a GPU is reported with the layer and the size that fits") {
  emulation::set_devices(1, std::size_t{73} << 20);  // the workspaces take 72 MiB
  const TempDir folder;
  // The job uses exact mode, because fast mode splits the batch.
  const Job job = small_job(small_config(kSgdWithoutDecay),
                            {"devices=[cuda:0]", "data.size=4000", "data.batch_size=3000",
                             "train.epochs=1", "train.shards=1"});
  std::string text;
  try {
    train_small(job, folder.path());
  } catch (const Error& error) {
    text = error.what();
    CHECK(error.kind() == ErrorKind::device);
  }
  emulation::set_devices(2);
  INFO(text);
  CHECK(text.find("cuda:0: out of memory: ") != std::string::npos);
  CHECK(text.find("; the largest layer is '") != std::string::npos);
  CHECK(text.find(" fit: set train.accumulate to ") != std::string::npos);
}

TEST_CASE("kernels that do not run are found by the self check, before anything is trained") {
  emulation::set_devices(1);
  const Job job = small_job(small_config(kSgdWithoutDecay, 1),
                            {"devices=[cuda:0]", "train.shards=2", "train.self_check=always"});
  // The check of this network runs 47 kernels.
  const char* const kChecked[] = {"  Conv2d 3x3 of ",        "  Linear of ",
                                  "  input (own): ",         "  loss (own): ",
                                  "  optimizer (own): ",     "  running statistics (own): ",
                                  "  sums and norms (own): "};
  int found = 0;
  for (int kernel = 1; kernel <= 47; ++kernel) {
    CAPTURE(kernel);
    const TempDir folder;
    emulation::fail("kernel:" + std::to_string(kernel) + ":skip");
    try {
      train_small(job, folder.path());
    } catch (const Error& error) {
      ++found;
      const std::string text = error.what();
      INFO(text);
      CHECK(error.kind() == ErrorKind::device);  // exit code 4
      CHECK(text.find("the self check found kernels that compute wrong values here:\n") !=
            std::string::npos);
      CHECK(std::any_of(std::begin(kChecked), std::end(kChecked), [&](const char* operation) {
        return text.find(operation) != std::string::npos;
      }));
      CHECK(text.find(", element ") != std::string::npos);
      CHECK(newest_good_checkpoint(folder.path() + "/checkpoints", [](const std::string&) {
            }).empty());
    }
    emulation::clear_failures();
  }
  // Five skipped kernels change nothing: two repeat a preparation of the weights whose result is
  // still in memory, and three look for non-finite statistics, of which there are none.
  CHECK(found == 42);
}

TEST_CASE("in fast mode, all replicas avoid a kernel that is wrong on one GPU") {
  emulation::set_devices(2);
  emulation::set_wrong_matmul(1, 1);
  // For rows of whole 16-byte blocks, cuBLASLt prefers another algorithm. Timing, which might
  // choose a different one, is off.
  std::string config = small_config(kSgdWithoutDecay, 1);
  const std::string features = "out_features: 9";
  config.replace(config.find(features), features.size(), "out_features: 8");
  const auto check = [&](const TempDir& folder, const std::string& shards) {
    train_small(small_job(config, {"devices=[cuda:0,cuda:1]", "train.self_check=auto",
                                   "train.autotune=false", shards}),
                folder.path());
  };
  // A wrong kernel is not kept as checked, so the second run finds it, too.
  for (int run = 0; run < 2; ++run) {
    const TempDir folder;
    check(folder, "train.shards=auto");
    const auto checks = events(folder, "self_check");
    REQUIRE(checks.size() == 1);
    CHECK(checks[0]["checked"] == checks[0]["operations"]);
    const auto& replaced = checks[0]["replaced"];
    REQUIRE(!replaced.empty());
    for (const auto& each : replaced) {
      INFO(each.dump());
      CHECK(each["kernel"].get<std::string>().starts_with("cublaslt:1-"));
      CHECK(each["device"] == "cuda:1");
      CHECK(each["operation"].get<std::string>().starts_with("Linear of "));
      CHECK(each["problem"].get<std::string>().ends_with(" (the same in a second check)"));
    }
    const auto replicas = events(folder, "replica");
    REQUIRE(replicas.size() == 1);
    const std::string used = replicas[0]["implementations"].dump();
    CHECK(used.find("cublaslt:") != std::string::npos);
    CHECK(used.find("cublaslt:1-") == std::string::npos);
  }
  const TempDir folder;
  CHECK_THROWS_WITH(check(folder, "train.shards=8"),
                    doctest::Contains("the self check found kernels that compute wrong values"));
  emulation::set_wrong_matmul(0);
}

TEST_CASE("the check of a step's kernels passes for mixed, erased and weighted samples") {
  emulation::set_devices(1);
  const std::string config = small_config(kSgdWithoutDecay, 1);
  for (const std::vector<std::string>& variant : std::vector<std::vector<std::string>>{
           {"data.transforms.batch=[{type: MixUp}]"},
           {"data.transforms.batch=[{type: CutMix}]", "train.precision=bf16"},
           {"data.transforms.batch=[{type: MixUp}]",
            "data.transforms.train=[{type: RandomErasing, p: 1}]"},
           {"loss={type: cross_entropy, label_smoothing: 0.1, class_weights: [1, 2, 3, 4]}"},
           {"optimizer={type: LAMB, lr: 0.01}", "train.ema={decay: 0.9}"}}) {
    CAPTURE(variant[0]);
    std::vector<std::string> overrides = variant;
    overrides.insert(overrides.end(), {"devices=[cuda:0]", "train.self_check=always"});
    const TempDir folder;
    CHECK_NOTHROW(train_small(small_job(config, overrides), folder.path()));
  }
}

TEST_CASE("a frozen layer before a batch norm needs no gradient memory on a GPU") {
  emulation::set_devices(1);
  std::string config = small_config(kSgdWithoutDecay, 1);
  const std::string relu = "- {type: ReLU}";
  config.replace(config.find(relu), relu.size(), "- {type: BatchNorm2d}");
  const TempDir on_gpu, on_cpu;
  const auto loss_on = [&](const char* devices, const TempDir& folder) {
    return train_small(small_job(config, {devices, "train.freeze=['conv1.*']"}), folder.path())
        .test_loss;
  };
  CHECK(loss_on("devices=[cuda:0]", on_gpu) ==
        doctest::Approx(loss_on("devices=[cpu]", on_cpu)).epsilon(1e-4));
}
