// Command-line errors are reported before anything runs, and each option reaches its command.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/checkpoints/safetensors.h"
#include "tests/cli/tiny.h"

using namespace dpt::testing;
namespace fs = std::filesystem;
using nlohmann::json;

TEST_CASE("a word that a command does not know gets a suggestion, as an unknown command does") {
  const Tiny w;
  const auto refused = [&](const std::vector<std::string>& words, const std::string& message) {
    const Finished finished = w.run(words);
    CHECK(finished.exit_code == 2);
    CHECK(finished.err == "dpt: error: unexpected argument " + message + "\n");
    CHECK(finished.out.empty());
  };
  refused({"train", "small.yaml", "--max-step", "3"},
          "'--max-step' of dpt train, did you mean '--max-steps'? See dpt train --help");
  refused({"train", "small.yaml", "--max_tiem=3h", "--nonsense"},
          "'--max_tiem=3h' of dpt train, did you mean '--max-time'? See dpt train --help");
  // These are options of other trainers.
  refused({"train", "small.yaml", "--epochs", "3"},
          "'--epochs' of dpt train; write train.epochs=N after the config. See dpt train --help");
  refused({"train", "small.yaml", "--batch-size=8"},
          "'--batch-size=8' of dpt train; write data.batch_size=N after the config. See dpt train "
          "--help");
  refused({"eval", "--epochs"}, "'--epochs' of dpt eval. See dpt eval --help");
  // The suggestion appears even if a required argument is missing as well.
  refused({"eval", "--jsno"}, "'--jsno' of dpt eval, did you mean '--json'? See dpt eval --help");
  refused({"config", "show", "small.yaml", "--origin"},
          "'--origin' of dpt config show, did you mean '--origins'? See dpt config show --help");
  refused({"bench", "small.yaml", "--frobnicate"},
          "'--frobnicate' of dpt bench. See dpt bench --help");
  refused({"devices", "jsno"}, "'jsno' of dpt devices. See dpt devices --help");
  refused({"--versoin"}, "'--versoin' of dpt, did you mean '--version'? See dpt --help");
  refused({"--versoin", "train"}, "'--versoin' of dpt, did you mean '--version'? See dpt --help");
  CHECK_FALSE(fs::exists(w.dir.file("runs")));
}

TEST_CASE("missing arguments and numbers out of range are usage errors") {
  const Tiny w;
  for (const std::vector<std::string>& words : {std::vector<std::string>{"config"},
                                                {"model"},
                                                {"eval"},
                                                {"inspect"},
                                                {"bench"},
                                                {"config", "check"},
                                                {"config", "show"},
                                                {"model", "summary"},
                                                {"model", "gradcheck"},
                                                {"data"},
                                                {"data", "check"},
                                                {"data", "show", "small.yaml"},
                                                {"data", "show", "small.yaml", "--out", ""},
                                                {"train", "small.yaml", "--max-steps", "0"},
                                                {"train", "small.yaml", "--max-steps", "-1"},
                                                {"train", "small.yaml", "--max-steps", "x"},
                                                {"train", "small.yaml", "--max-time"},
                                                {"train", "small.yaml", "--weights", ""},
                                                {"train", "small.yaml", "--weights="},
                                                {"train", "small.yaml", "--resume=", "--dry-run"},
                                                {"train", "small.yaml", "--run-dir", ""},
                                                {"train", "small.yaml", "--resume", ""},
                                                {"train", "small.yaml", "--max-time", ""},
                                                {"bench", "small.yaml", "--weights", ""},
                                                {"eval", "runs/tiny", "--predictions", ""},
                                                {"bench", "small.yaml", "--steps", "0"},
                                                {"bench", "small.yaml", "--rounds", "0"},
                                                {"bench", "small.yaml", "--rounds", "-2"}}) {
    CAPTURE(words[0]);
    CAPTURE(words.back());
    const Finished finished = w.run(words);
    CHECK(finished.exit_code == 2);
    CHECK_FALSE(finished.err.empty());
    CHECK(finished.out.empty());
  }
  check_contains(w.run({"train", "small.yaml", "--resume=", "--dry-run"}).err,
                 "--resume=: expected a value after '=', found an empty string");
  CHECK_FALSE(fs::exists(w.dir.file("runs")));
}

TEST_CASE("a dry run checks what the run would start from, and changes nothing") {
  const Tiny w;
  const std::vector<std::string> dry = {"train", "small.yaml", "--dry-run"};
  const auto says = [&](const std::vector<std::string>& more, int exit_code, const char* text) {
    const Finished finished = w.run(dry, more);
    CHECK(finished.exit_code == exit_code);
    check_contains(finished.err, text);
  };
  says({"--weights", "none.safetensors"}, 3, "none.safetensors: cannot open");
  says({"--resume", "must"}, 3, "--resume must: runs/tiny/checkpoints has no checkpoint");
  says({"--resume", "none.safetensors"}, 2, "found no such file");
  CHECK_FALSE(fs::exists(w.dir.file("runs")));

  w.run_well({"train", "small.yaml", "--max-steps", "2"});
  const auto files = [&] {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(w.dir.file("runs"))) {
      names.insert(entry.path().string() +
                   std::to_string(entry.last_write_time().time_since_epoch().count()));
    }
    return names;
  };
  const auto before = files();
  check_contains(w.run_well(dry, {"--resume", "must"}).err, "the run would resume at step 2 of ");
  w.run_well(dry,
             {"--weights", "runs/tiny/checkpoints/step-00000002.safetensors", "--resume", "never"});
  says({"optimizer.lr=0.2"}, 2, "was saved with another config");
  CHECK(files() == before);
  w.run_well({"train", "small.yaml"});
  check_contains(w.run_well(dry).err, "nothing is left to train: all ");
}

TEST_CASE("--require of a split that the run does not have is refused before it trains") {
  const Tiny w;
  const Finished val =
      w.run({"train", "small.yaml", "data.val_split=0", "--require", "val/accuracy>=0"});
  CHECK(val.exit_code == 3);
  check_contains(val.err, "data.val_split");
  const Finished test =
      w.run({"train", "small.yaml", "data.test_size=0", "--require", "test/accuracy>=0"});
  CHECK(test.exit_code == 3);
  CHECK_FALSE(fs::exists(w.dir.file("runs")));
  // A condition on training samples can always be checked.
  w.run_well({"train", "small.yaml", "data.val_split=0", "--require", "train/accuracy>=0"});
}

TEST_CASE("a run that will continue is judged at its end, not when it is stopped") {
  const Tiny w;
  const std::vector<std::string> command = {"train", "small.yaml", "--require",
                                            "train/accuracy>=2"};
  const Finished stopped = w.run(command, {"--max-time", "0s"});
  CHECK(stopped.exit_code == 75);
  check_contains(stopped.err,
                 " (--max-time), checkpoint saved; run the same command again to resume\n");
  const Finished limited = w.run(command, {"--max-steps", "4"});
  CHECK(limited.exit_code == 7);
  check_contains(limited.err, "stopped at step 4 (--max-steps), checkpoint saved; to resume: ");
  CHECK(w.run(command).exit_code == 7);
}

TEST_CASE("a dry run counts replicas and what the optimizer keeps") {
  const Tiny w;
  const std::string out = w.run_well({"train", "small.yaml", "--dry-run", "devices=[cpu, cpu]",
                                      "optimizer={type: Adam}"})
                              .out;
  check_contains(out, "Per image: 192 FLOP forward and backward");
  check_contains(out,
                 "(4 of 8 images on 2 replicas, 4 at once): parameters 256 B, gradients 384 B, "
                 "optimizer 512 B");
  check_contains(out,
                 "train 40 samples, val 8, test 6; 5 steps per epoch, 5 in total; 2 replicas: ");
  check_contains(out, "; 2 x cpu\n");
}

TEST_CASE("a dry run warns of a network that the memory cannot hold") {
  const Tiny w;
  // Batch normalisation needs all 8 images of 4096x4096 at once: 512 MiB for each of its layers.
  std::string network = "model.layers=[{type: Upsample, scale_factor: 1024}, ";
  for (int i = 0; i < 4000; ++i) network += "{type: BatchNorm2d}, ";
  network +=
      "{type: AdaptiveAvgPool2d, output_size: 1}, {type: Flatten}, {type: Linear, out_features: "
      "3}]";
  const Finished run = w.run_well({"train", "small.yaml", "--dry-run", "devices=cpu", network});
  check_contains(run.err, "training will probably run out of memory: 1 replica on the CPU needs ");
  check_contains(run.err, "use a smaller network, batch or images, or fewer replicas");
}

TEST_CASE("messages and files of a run") {
  const Tiny w;
  const Finished first = w.run_well({"train", "small.yaml", "data.val_split=0", "--run-dir", "r",
                                     "data.test_size=0", "--max-steps", "2"});
  check_contains(first.err, "run folder r\n");
  check_contains(first.err, "51 parameters, 48 training samples, batch 8 on 1 replica (cpu)\n");
  check_contains(first.err,
                 "no validation samples (data.val_split is 0, and the data set has none)\n");
  check_contains(w.run_well({"train", "small.yaml", "--run-dir", "one"}).err,
                 "done: 1 epoch, 5 steps in 0:0");
  const Finished whole = w.run_well({"train", "small.yaml", "train.epochs=2"});
  CHECK_FALSE(contains(whole.err, "no validation samples"));
  CHECK_FALSE(contains(whole.err, "resuming"));
  const json summary = json::parse(read_file(w.dir.file("runs/tiny/summary.json")));
  check_contains(whole.err, "done: 2 epochs, 10 steps in 0:0");
  check_contains(whole.err, fmt::format("; test accuracy {:.4f}, loss {:.4f}\n",
                                        summary["test"]["accuracy"].get<double>(),
                                        summary["test"]["loss"].get<double>()));
  const json end = events(w.dir.file("runs/tiny/metrics.jsonl"), "run_end").at(0);
  CHECK(end["status"] == "ok");
  CHECK(end["best"] == summary["best"]);
  CHECK(end["test"] == summary["test"]);
  CHECK(events(w.dir.file("runs/tiny/metrics.jsonl"), "run_start").at(0)["device_weights"] ==
        json::array({1}));
  // The indentation is two spaces, for human readers.
  CHECK(read_file(w.dir.file("runs/tiny/summary.json")).starts_with("{\n  \"v\": 1,\n"));
  CHECK(read_file(w.dir.file("runs/tiny/env.json")).starts_with("{\n  \"version\": "));
  // The log in the folder has the same messages, with times.
  const std::string log = read_file(w.dir.file("runs/tiny/train.log"));
  check_contains(log, "done: 2 epochs");
  check_contains(log, "run folder runs/tiny");

  const Finished complete = w.run_well({"train", "small.yaml", "train.epochs=2"});
  CHECK(complete.err ==
        "runs/tiny is complete: 2 epochs. Raise train.epochs to continue training, or start a new "
        "run with --overwrite or --resume never\n");
  const Finished more = w.run_well({"train", "small.yaml", "train.epochs=3", "--max-steps", "11"});
  check_contains(more.err,
                 "resuming runs/tiny/checkpoints/step-00000010.safetensors at step 10 "
                 "(epoch 3)\n");
}

TEST_CASE("a run that stopped early says what to change") {
  const Tiny w;
  const std::vector<std::string> command = {
      "train", "small.yaml", "train.epochs=9",
      "train.early_stopping={monitor: val/accuracy, patience: 1}", "optimizer.lr=0"};
  w.run_well(command);
  CHECK(w.run_well(command).err ==
        "runs/tiny is complete: 2 epochs, stopped early. Raise "
        "train.early_stopping.patience to continue training, or start a new run with --overwrite "
        "or --resume never\n");
}

TEST_CASE("a summary that does not match the end of the run is written again") {
  const Tiny w;
  w.run_well({"train", "small.yaml"});
  const std::string file = w.dir.file("runs/tiny/summary.json");
  const json whole = json::parse(read_file(file));
  const auto with = [&](const std::string& key, const json& value) {
    json changed = whole;
    changed[key] = value;
    write_file(file, changed.dump());
    w.run_well({"train", "small.yaml"});
    const json now = json::parse(read_file(file));
    CHECK(now[key] == whole[key]);
    CHECK(now["test"] == whole["test"]);
  };
  with("status", "stopped");
  with("steps", 4);
  write_file(file, "[1, 2");
  w.run_well({"train", "small.yaml"});
  CHECK(json::parse(read_file(file))["status"] == "ok");
}

TEST_CASE("a run that continues leaves files alone that are already right") {
  const Tiny w;
  const std::vector<std::string> command = {"train", "small.yaml", "train.epochs=3"};
  const auto begin = [&] {
    w.run_well(command, {"--overwrite", "--max-time", "300d", "--max-steps", "2"});
  };
  begin();
  const std::string folder = w.dir.file("runs/tiny/");
  // A rewritten file is a new file: the hard link keeps the old one.
  for (const char* name : {"config.yaml", "env.json"}) {
    fs::create_hard_link(folder + name, w.dir.file(name));
  }
  w.run_well(command);
  for (const char* name : {"config.yaml", "env.json"}) {
    CAPTURE(name);
    CHECK(fs::hard_link_count(folder + name) == 2);
  }
  check_contains(read_file(folder + "command.txt"), "dpt train small.yaml train.epochs=3\n");
  const json env = json::parse(read_file(folder + "env.json"));
  const json devices = json::parse(w.run_well({"devices", "--json"}).out);
  CHECK(env["cpu"]["model"] == devices["cpu"]["model"]);
  CHECK(env["cpu"]["instruction_set"] == devices["cpu"]["instruction_set"]);
  CHECK(env["cpu"]["cores_allowed"] == devices["cpu"]["logical_cores_allowed"]);
  check_contains(env["made_by"], "; 1 x cpu");
  CHECK(env["version"].get<std::string>() + "\n" == w.run_well({"--version"}).out);
}

TEST_CASE("a name that is too long for a file is not found") {
  const Tiny w;
  const std::string name(5000, 'x');
  const Finished eval = w.run({"eval", name});
  CHECK(eval.exit_code == 3);
  check_contains(eval.err, ": no such run folder or checkpoint (`dpt runs` lists the runs)\n");
  const Finished train = w.run({"train", "small.yaml", "--resume", name});
  CHECK(train.exit_code == 2);
  check_contains(train.err, "found no such file; runs/tiny/checkpoints has no checkpoint\n");
  CHECK(w.run({"train", name}).exit_code == 2);
  CHECK(w.run({"inspect", name}).exit_code == 3);
  CHECK(w.run({"train", "small.yaml", "--weights", name}).exit_code == 3);
  CHECK(w.run({"train", "small.yaml", "--run-dir", name}).exit_code == 3);
}

TEST_CASE("--expect-missing and --expect-left-over take lists") {
  const Tiny w;
  const std::vector<float> values(6);
  dpt::write_safetensors(w.dir.file("w.safetensors"), {},
                         {{"a.x", "F32", {6}, values.data()}, {"b.x", "F32", {6}, values.data()}});
  const std::vector<std::string> command = {"train", "small.yaml", "--max-steps",
                                            "1",     "--weights",  "w.safetensors"};
  w.run_well(command, {"--expect-missing", "fc.weight,fc.bias", "--expect-left-over", "a.x,b.*"});
  const Finished refused = w.run(
      command, {"--run-dir", "r", "--expect-missing", "fc.weight", "--expect-left-over", "a.x"});
  CHECK(refused.exit_code == 3);
  check_contains(refused.err,
                 "does not fit the model:\n  missing from the file: fc.bias\n  left over in the "
                 "file: b.x\nIf this is intended");
}

TEST_CASE("an option does not swallow the argument after its value") {
  const Tiny w;
  const std::vector<float> values(6);
  dpt::write_safetensors(w.dir.file("w.safetensors"), {}, {{"a.x", "F32", {6}, values.data()}});
  w.run_well({"train", "--require", "train/loss<=1000", "small.yaml", "train.epochs=2", "--weights",
              "w.safetensors", "--expect-missing", "fc.weight", "fc.bias", "seed=8",
              "--expect-left-over", "a.x", "optimizer.lr=0.25"});
  const std::string config = read_file(w.dir.file("runs/tiny/config.yaml"));
  check_contains(config, "epochs: 2\n");
  check_contains(config, "seed: 8\n");
  check_contains(config, "lr: 0.25\n");
  w.run_well({"eval", "--require", "test/loss<=1000", "runs/tiny"});
}

TEST_CASE("auto takes no more replicas than there are shards") {
  const Tiny w;
  check_contains(
      w.run_well({"train", "small.yaml", "devices=auto", "train.shards=1", "--dry-run"}).out,
      "; 1 replica");
  CHECK(json::parse(w.run_well({"model", "summary", "small.yaml", "devices=auto", "train.shards=1",
                                "--json"})
                        .out)["replicas"] == 1);
}

TEST_CASE("config check counts, and --origins says where values come from") {
  const Tiny w;
  CHECK(w.run_well({"config", "check", "small.yaml"}).out ==
        "small.yaml: ok: 2 layers, 51 parameters; data not checked: synthetic\n");
  const std::string plain = w.run_well({"config", "show", "small.yaml", "seed=4"}).out;
  check_contains(plain, "\nseed: 4\n");
  CHECK_FALSE(contains(plain, "#"));
  const std::string origins =
      w.run_well({"config", "show", "small.yaml", "--origins", "seed=4"}).out;
  check_contains(origins, "# command line\n");
  check_contains(origins, "# small.yaml:2\n");
}

TEST_CASE("config check reports contradictions at once, without the data") {
  const Tiny w;
  const Finished bad =
      w.run({"config", "check", "small.yaml"},
            {"lr_schedule={type: cosine, min_lr: 1}",
             "data.transforms.train=[{type: RandomCrop, size: 9}, {type: RandomHorizontalFlip}]",
             "data.transforms.eval=[{type: Normalize, mean: [0.5, 0.5], std: [1, 1]}]"});
  CHECK(bad.exit_code == 2);
  check_contains(bad.err, "RandomCrop: size 9x9 is not the height and width of model.input, 4x4");
  check_contains(bad.err, "Normalize: mean has 2 values, but the images have 1 channel");
  check_contains(bad.err, "expected a min_lr of at most the optimizer's lr (0.1), found 1");
  const Finished measured =
      w.run({"config", "check", "small.yaml"}, {"metrics=[{type: top_k, k: 50}]"});
  CHECK(measured.exit_code == 2);
  check_contains(measured.err, "metrics: top_k: expected k from 1 to ");
  const Finished weighted =
      w.run({"config", "check", "small.yaml"}, {"loss={type: cross_entropy, class_weights: [1]}"});
  CHECK(weighted.exit_code == 2);
  check_contains(weighted.err, "loss.class_weights: expected ");
  w.run_well({"config", "check", "small.yaml"},
             {"loss={type: cross_entropy, class_weights: balanced, ignore_index: 0}"});
  // The layers that do not fit the input are reported, too.
  write_file(w.dir.file("small.yaml"),
             std::string(kTinyConfig) + "lr_schedule: {type: cosine, min_lr: 0.2}\n");
  const Finished both =
      w.run({"config", "check", "small.yaml"},
            {"model.layers=[{type: Conv2d, out_channels: 3, kernel_size: 9}, {type: Flatten}]"});
  CHECK(both.exit_code == 2);
  check_contains(both.err, "kernel_size 9x9 does not fit");
  check_contains(both.err, "small.yaml:11:14: lr_schedule: expected a min_lr of at most");
  w.run_well(
      {"config", "check", "small.yaml"},
      {"lr_schedule.min_lr=0.1", "data.transforms.train=[{type: RandomCrop, size: 4, padding: 1}]",
       "data.transforms.eval=[{type: Normalize, mean: [0.5], std: [1]}]"});
}

TEST_CASE("a dry run counts the memory of the samples that run at once") {
  const Tiny w;
  const auto said = [&](const std::string& override_text) {
    return w.run_well({"train", "small.yaml", "--dry-run", override_text}).out;
  };
  check_contains(said("seed=1"), "(8 of 8 images on 1 replica, 8 at once)");
  // Check a batch larger than the data set, and one too large for a CPU to run at once.
  check_contains(said("data.batch_size=1073741824"), "(40 of 40 images on 1 replica, 40 at once)");
  check_contains(
      w.run_well({"train", "small.yaml", "--dry-run", "data.batch_size=1000", "data.size=2008"})
          .out,
      "(1000 of 1000 images on 1 replica, 250 at once)");
}

TEST_CASE("model gradcheck prints a line for each tensor and accepts the gradients of dpt") {
  const Workplace w;
  const Finished table = w.run_well({"model", "gradcheck", "small.yaml"});
  check_contains(table.out, "result\nconv1.weight ");
  CHECK(table.out.find("DIFFERS") == std::string::npos);
  // With --random, gradcheck works without the data, and with any devices and precision in the
  // config.
  std::string elsewhere = program_config();
  const std::string data = "dataset: synthetic\n  size: 200\n  test_size: 40\n  classes: 4";
  elsewhere.replace(elsewhere.find(data), data.size(), "dataset: mnist\n  root: nowhere");
  write_file(w.dir.file("elsewhere.yaml"), elsewhere);
  CHECK(w.run({"model", "gradcheck", "elsewhere.yaml"}).exit_code == 3);
  const json tensors =
      json::parse(w.run_well({"model", "gradcheck", "elsewhere.yaml", "devices=[cpu,cpu]",
                              "train.shards=auto", "device_weights=[1,2]", "train.precision=bf16",
                              "--random", "--samples", "3", "--json"})
                      .out)["tensors"];
  REQUIRE_FALSE(tensors.empty());
  CHECK(tensors[0]["layer"] == "conv1");
  CHECK(tensors[0]["parameter"] == "conv1.weight");
  CHECK(tensors[0]["result"] == "ok");
  CHECK(tensors[0]["directions"].get<int>() > 0);
  CHECK(tensors[0]["relative_error"].get<double>() < 0.3);
  // Frozen parameters have no gradient to check.
  const std::string frozen =
      w.run_well({"model", "gradcheck", "small.yaml", "train.freeze=[conv1.*]"}).out;
  CHECK(frozen.find("conv1.weight") == std::string::npos);
  const Finished many = w.run({"model", "gradcheck", "small.yaml", "--samples", "1024"});
  CHECK(many.exit_code == 2);
  check_contains(many.err, "--samples: expected at most ");
  CHECK(w.run({"model", "gradcheck", "small.yaml", "--samples", "0"}).exit_code == 2);
}

TEST_CASE("model summary counts the replicas and the optimizer of the config") {
  const Tiny w;
  const std::vector<std::string> command = {"model", "summary", "small.yaml", "--json"};
  const auto with = [&](const std::string& override_text) {
    return json::parse(w.run_well(command, {override_text}).out);
  };
  CHECK(with("devices=[cpu, cpu, cpu]")["replicas"] == 3);
  CHECK(with("data.batch_size=1000")["samples_at_once"] == 250);
  // The devices need not be present.
  CHECK(with("devices=[cuda:0, cuda:61]")["replicas"] == 2);
  const Finished gpus = w.run_well({"model", "summary", "small.yaml", "devices=cuda", "--json"});
  CHECK(contains(gpus.err, "no GPU is available here: the summary is for one replica") ==
        (json::parse(w.run_well({"devices", "--json"}).out)["cuda"].empty()));
  const json adam = with("optimizer={type: Adam}")["memory_per_replica"];
  CHECK(adam["optimizer"] == 2 * adam["parameters"].get<int>());
  CHECK(with("seed=1")["memory_per_replica"]["optimizer"] == 0);
}

TEST_CASE("devices: the text has the content of the JSON") {
  const Tiny w;
  const json out = json::parse(w.run_well({"devices", "--json"}).out);
  const json& cpu = out["cpu"];
  const std::string text = w.run_well({"devices"}).out;
  CHECK(text.find(fmt::format(
            "cpu     {}, {} usable core{} ({} physical), {}, bf16: {}, {:.1f} "
            "GiB\n",
            cpu["model"].get<std::string>(), cpu["logical_cores_allowed"].get<int>(),
            cpu["logical_cores_allowed"].get<int>() == 1 ? "" : "s",
            cpu["physical_cores_allowed"].get<int>(), cpu["instruction_set"].get<std::string>(),
            cpu["bf16"].get<bool>() ? "yes" : "no",
            cpu["memory_bytes"].get<double>() / 1073741824.0)) == 0);
  const std::string driver = out["cuda_driver"];
  CHECK(out["cuda_runtime"].is_string());
  CHECK(out["cuda_libraries"].is_array());
  CHECK(contains(text, "        driver for CUDA " + driver + ", runtime ") == !driver.empty());
  if (out.contains("cuda_unavailable")) {
    CHECK(out["cuda"].empty());
    check_contains(text, "cuda    none: " + out["cuda_unavailable"].get<std::string>() + "\n");
    CHECK(out["auto"].size() == cpu["physical_cores_allowed"].get<std::size_t>());
    CHECK(out["auto"][0] == "cpu");
    check_contains(text, fmt::format("`devices: auto` means {} replica{} on the CPU here\n",
                                     out["auto"].size(), out["auto"].size() == 1 ? "" : "s"));
  }
}

// Sanitizers abort a program that requests too much memory.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("memory that the system does not give is a device's error, and says what helps") {
  const Tiny w;
  const auto with_8_gib = [] {
    const rlimit limit{rlim_t{8} << 30, rlim_t{8} << 30};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(124);
  };
  // The order of this many samples alone takes 16 GiB.
  const Finished run =
      run_dpt({"train", "small.yaml", "data.size=2147483647"}, w.dir.path(), with_8_gib);
  CHECK(run.exit_code == 4);
  CHECK(run.err == "dpt: error: out of memory: try a smaller data.batch_size or fewer devices\n");
  CHECK_FALSE(fs::exists(w.dir.file("runs")));
}
#endif
