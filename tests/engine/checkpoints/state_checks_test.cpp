// Impossible counters, missing checksums, and names of older releases.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/checkpoints/checkpoint.h"
#include "engine/checkpoints/run_metadata.h"
#include "engine/checkpoints/weights_file.h"
#include "tests/engine/checkpoints/files.h"
#include "tests/engine/checkpoints/small_plan.h"

namespace dpt {
namespace {

Metadata good_metadata() {
  return to_metadata(small_checkpoint(small_plan()));
}

std::string error_with(const std::string& key, const std::string& value) {
  Metadata metadata = good_metadata();
  metadata["dpt." + key] = value;
  return error_of([&] { from_metadata("ckpt", metadata); }, "ckpt");
}

TEST_CASE("a state that could not be read again is not written over one that can") {
  const TempDir folder;
  const Plan plan = small_plan();
  const std::string path = folder.file("c.safetensors");
  Checkpoint checkpoint = small_checkpoint(plan);
  save_checkpoint(path, plan, checkpoint);
  checkpoint.state.lr_scale = 0;
  CHECK(error_of([&] { save_checkpoint(path, plan, checkpoint); }, path) ==
        "F: metadata 'dpt.lr_scale': expected a number above 0 and at most 1, found 0");
  checkpoint.state.lr_scale = 1;
  checkpoint.state.device_weights = {1};
  CHECK(error_of([&] { save_checkpoint(path, plan, checkpoint); }, path)
            .starts_with("F: metadata 'dpt.device_weights'"));
  CHECK(load_checkpoint(path, plan).state.lr_scale == 0.125);
}

TEST_CASE("a counter that no run can have is refused with file, key, expected and found") {
  CHECK(error_with("step", "17") == "no error");
  const std::string whole = ": expected an integer from 0 to ";
  CHECK(error_with("step", "-50") == "F: metadata 'dpt.step'" + whole + "1099511627776, found -50");
  CHECK(error_with("epoch", "-1") == "F: metadata 'dpt.epoch'" + whole + "1000000, found -1");
  CHECK(error_with("epoch", "1000001").starts_with("F: metadata 'dpt.epoch'"));
  CHECK(error_with("position", "-1280000") ==
        "F: metadata 'dpt.position'" + whole + "1099511627776, found -1280000");
  CHECK(error_with("best_step", "18") ==
        "F: metadata 'dpt.best_step'" + whole + "17 ('dpt.step'), found 18");
  CHECK(error_with("best_step", "17") == "no error");
  CHECK(error_with("best_step", "-1").starts_with("F: metadata 'dpt.best_step'"));
  CHECK(error_with("bad_evaluations", "-1").starts_with("F: metadata 'dpt.bad_evaluations'"));
  CHECK(error_with("bad_evaluations", "3").starts_with("F: metadata 'dpt.bad_evaluations'"));
  CHECK(error_with("epoch_loss_sum", "nan") ==
        "F: metadata 'dpt.epoch_loss_sum': expected a finite sum of at least 0, found nan");
  CHECK(error_with("epoch_loss_sum", "inf").starts_with("F: metadata 'dpt.epoch_loss_sum'"));
  CHECK(error_with("epoch_loss_sum", "-1").starts_with("F: metadata 'dpt.epoch_loss_sum'"));
  CHECK(error_with("epoch_correct", "513") ==
        "F: metadata 'dpt.epoch_correct': expected a count from 0 to 512 ('dpt.position'), found "
        "513");
  CHECK(error_with("epoch_correct", "512") == "no error");
  CHECK(error_with("lr_scale", "0") ==
        "F: metadata 'dpt.lr_scale': expected a number above 0 and at most 1, found 0");
  for (const char* bad : {"-1", "1.5", "nan", "inf"}) {
    CHECK(error_with("lr_scale", bad).starts_with("F: metadata 'dpt.lr_scale'"));
  }
  CHECK(error_with("lr_scale", "1e-9") == "no error");
  CHECK(error_with("plateau_scale", "0") ==
        "F: metadata 'dpt.plateau_scale': expected a number above 0 and at most 1, found 0");
  for (const char* good : {"none", "0,0", "0,5", "0,2,2,0", "0,2,3,1,9,1000000"}) {
    CHECK(error_with("schedule_segments", good) == "no error");
  }
  for (const char* bad :
       {"0", "1,2", "0,-1", "0,0,2,0", "0,3,2,0", "0,1000001", "0,2,2", "0,2,-2,1"}) {
    CAPTURE(bad);
    CHECK(error_with("schedule_segments", bad) ==
          std::string("F: metadata 'dpt.schedule_segments': expected the start and length, in "
                      "epochs, of each segment, in order and from 0, found ") +
              bad);
  }
  for (const char* key : {"best_sum", "early_sum", "plateau_sum"}) {
    CAPTURE(key);
    CHECK(error_with(key, "inf") ==
          fmt::format("F: metadata 'dpt.{}': expected a finite number, found inf", key));
    CHECK(error_with(key, "-2.5") == "no error");
  }
  for (const char* key : {"best_weight", "early_weight", "plateau_weight"}) {
    CAPTURE(key);
    CHECK(error_with(key, "1.5") ==
          fmt::format("F: metadata 'dpt.{}': expected a weight from 0 to 1, found 1.5", key));
    for (const char* good : {"0", "1"}) CHECK(error_with(key, good) == "no error");
  }
  CHECK(error_with("plateau_bad", "3") ==
        "F: metadata 'dpt.plateau_bad': expected an integer from 0 to 2 ('dpt.epoch'), found 3");
  CHECK(error_with("plateau_cooldown", "-1").starts_with("F: metadata 'dpt.plateau_cooldown'"));
  for (const char* key :
       {"epoch_skipped", "skipped_steps", "skipped_in_row", "rollbacks", "val_n"}) {
    CAPTURE(key);
    CHECK(error_with(key, "-1").starts_with(std::string("F: metadata 'dpt.") + key));
    CHECK(
        error_with(key, "9223372036854775807").starts_with(std::string("F: metadata 'dpt.") + key));
  }
  CHECK(error_with("epoch_skipped", "512") == "no error");  // as many samples as there are
  CHECK(error_with("epoch_skipped", "513").starts_with("F: metadata 'dpt.epoch_skipped'"));
  CHECK(error_with("skipped_steps", "17") == "no error");
  CHECK(error_with("skipped_in_row", "5") == "no error");
  CHECK(error_with("skipped_in_row", "6") ==
        "F: metadata 'dpt.skipped_in_row': expected an integer from 0 to 5 ('dpt.skipped_steps'), "
        "found 6");
  CHECK(error_with("skipped_steps", "18").starts_with("F: metadata 'dpt.skipped_steps'"));
  for (const char* key : {"rollback_step", "rollback_candidate"}) {
    CAPTURE(key);
    CHECK(error_with(key, "-1") == "no error");
    CHECK(error_with(key, "17") == "no error");
    CHECK(error_with(key, "-2").starts_with(std::string("F: metadata 'dpt.") + key));
    CHECK(error_with(key, "18").starts_with(std::string("F: metadata 'dpt.") + key));
  }
  CHECK(error_with("val_accuracy", "2") ==
        "F: metadata 'dpt.val_accuracy': expected an accuracy from 0 to 1, found 2");
  CHECK(error_with("train_accuracy", "-0.5").starts_with("F: metadata 'dpt.train_accuracy'"));
  CHECK(error_with("train_loss", "-1").starts_with("F: metadata 'dpt.train_loss'"));
  CHECK(error_with("val_loss", "-1") ==
        "F: metadata 'dpt.val_loss': expected a loss of at least 0, found -1");
  CHECK(error_with("val_loss", "nan") == "no error");
  CHECK(error_with("shards", "-1").starts_with("F: metadata 'dpt.shards'"));
  CHECK(error_with("shards", "65537").starts_with("F: metadata 'dpt.shards'"));
  CHECK(error_with("device_weights", "9,0") ==
        "F: metadata 'dpt.device_weights': expected an integer from 1 to 1048576 each, found 0");
  CHECK(error_with("device_weights", "9,1,1") ==
        "F: metadata 'dpt.device_weights': expected a number for each of the 2 devices in "
        "'dpt.devices', found 3");
}

TEST_CASE("a counter at its bound is accepted, one past it is not") {
  CHECK(error_with("step", "1099511627776") == "no error");
  CHECK(error_with("step", "1099511627777").starts_with("F: metadata 'dpt.step'"));
  CHECK(error_with("step", "15") == "no error");  // the step of the best
  CHECK(error_with("epoch", "1000000") == "no error");
  CHECK(error_with("position", "1099511627776") == "no error");
  CHECK(error_with("position", "1099511627777").starts_with("F: metadata 'dpt.position'"));
  CHECK(error_with("position", "501") == "no error");  // just above epoch_correct, 500.25
  CHECK(error_with("best_step", "0") == "no error");
  CHECK(error_with("bad_evaluations", "0") == "no error");
  CHECK(error_with("bad_evaluations", "2") == "no error");  // after two epochs
  CHECK(error_with("epoch_loss_sum", "0") == "no error");
  CHECK(error_with("epoch_loss_sum", "1e308") == "no error");
  CHECK(error_with("epoch_correct", "0") == "no error");
  CHECK(error_with("epoch_correct", "-0.5").starts_with("F: metadata 'dpt.epoch_correct'"));
  CHECK(error_with("shards", "0") == "no error");
  CHECK(error_with("shards", "65536") == "no error");
  CHECK(error_with("device_weights", "1,1048576") == "no error");
  CHECK(error_with("device_weights", "1,1048577").starts_with("F: metadata 'dpt.device_weights'"));
  CHECK(error_with("device_weights", "none") == "no error");
}

TEST_CASE("results at their bounds are accepted: no sample right, all right, no loss at all") {
  for (const char* key : {"train_accuracy", "val_accuracy"}) {
    CAPTURE(key);
    for (const char* good : {"0", "1", "nan", "none"}) CHECK(error_with(key, good) == "no error");
    CHECK(error_with(key, "1.0000001").starts_with(std::string("F: metadata 'dpt.") + key));
  }
  for (const char* key : {"train_loss", "val_loss"}) {
    CAPTURE(key);
    for (const char* good : {"0", "inf", "none"}) CHECK(error_with(key, good) == "no error");
    CHECK(error_with(key, "-inf").starts_with(std::string("F: metadata 'dpt.") + key));
  }
  for (const char* key : {"val_n", "rollbacks"}) {
    CAPTURE(key);
    for (const char* good : {"0", "1099511627776"}) CHECK(error_with(key, good) == "no error");
  }
  // Two epochs are closed, and a third is not.
  for (const char* good : {"0", "3"}) CHECK(error_with("averaged", good) == "no error");
  for (const char* bad : {"-1", "4"}) {
    CHECK(error_with("averaged", bad).starts_with("F: metadata 'dpt.averaged': expected"));
  }
}

TEST_CASE("files of older minor versions leave what they do not know at its default") {
  Metadata metadata = good_metadata();
  const RunState usual;
  for (const char* key :
       {"best_monitor",   "best_checksum",  "early_monitor",    "train_loss",
        "train_accuracy", "val_loss",       "val_accuracy",     "val_n",
        "lr_scale",       "rollbacks",      "rollback_step",    "rollback_candidate",
        "skipped_steps",  "skipped_in_row", "epoch_skipped",    "plateau_scale",
        "plateau_best",   "plateau_bad",    "plateau_cooldown", "best_average_of",
        "best_sum",       "best_weight",    "early_sum",        "early_weight",
        "plateau_sum",    "plateau_weight", "epoch_weight",     "epoch_labelled",
        "epoch_sums",     "train_metrics",  "val_metrics",      "schedule_segments",
        "averaged"}) {
    CAPTURE(key);
    Metadata without = good_metadata();
    without.erase(std::string("dpt.") + key);
    CHECK(error_of([&] { from_metadata("ckpt", without); }, "ckpt") ==
          fmt::format("F: expected metadata 'dpt.{}', found none", key));
    without["dpt.version"] = "1.1";
    CHECK_NOTHROW(from_metadata("ckpt", without));
    metadata.erase(std::string("dpt.") + key);
  }
  metadata["dpt.version"] = "1.1";
  RunState old = from_metadata("ckpt", metadata).state;
  CHECK(old.device_weights == std::vector<std::int64_t>{9988, 12});
  CHECK(old.best_step == 15);
  CHECK(old.best_monitor.empty());
  CHECK_FALSE(old.train_loss.has_value());
  CHECK(old.lr_scale == 1);
  CHECK(old.plateau_scale == 1);
  CHECK(old.rollback_step == -1);
  // Older files counted every sample with the weight 1.
  CHECK(old.epoch_weight == 512);
  CHECK(old.epoch_labelled == 512);
  CHECK(old.epoch_sums.empty());
  metadata.erase("dpt.device_weights");
  CHECK(error_of([&] { from_metadata("ckpt", metadata); }, "ckpt") ==
        "F: expected metadata 'dpt.device_weights', found none");
  metadata["dpt.version"] = "1.0";
  old = from_metadata("ckpt", metadata).state;
  CHECK(old.device_weights.empty());
  CHECK(old.step == 17);
  metadata.erase("dpt.best_step");
  CHECK(error_of([&] { from_metadata("ckpt", metadata); }, "ckpt") ==
        "F: expected metadata 'dpt.best_step', found none");
}

TEST_CASE("metrics in the metadata are pairs of a name and a number") {
  Metadata metadata = good_metadata();
  metadata["dpt.val_metrics"] = R"([["r2",null]])";
  const RunState state = from_metadata("ckpt", metadata).state;
  REQUIRE(state.val_metrics.size() == 1);
  CHECK(std::isnan(state.val_metrics[0].second));
  for (const char* bad : {"", "{}", "[1]", R"([["r2"]])", R"([["r2","x"]])"}) {
    CAPTURE(bad);
    metadata["dpt.val_metrics"] = bad;
    CHECK(error_of([&] { from_metadata("ckpt", metadata); }, "ckpt")
              .starts_with("F: metadata 'dpt.val_metrics': expected a JSON list of [name, number] "
                           "pairs, found"));
  }
  metadata = good_metadata();
  for (const char* bad : {"1,x", "-1", "-inf"}) {
    CAPTURE(bad);
    metadata["dpt.epoch_sums"] = bad;
    CHECK(error_of([&] { from_metadata("ckpt", metadata); }, "ckpt")
              .starts_with("F: metadata 'dpt.epoch_sums': expected"));
  }
}

TEST_CASE("sums of metrics may exceed what a step adds up in") {
  Metadata metadata = good_metadata();
  metadata["dpt.epoch_sums"] = "inf,3";
  const RunState state = from_metadata("ckpt", metadata).state;
  CHECK(state.epoch_sums == std::vector<double>{HUGE_VAL, 3});
}

TEST_CASE("a best that is not a number counts as none") {
  Metadata metadata = good_metadata();
  metadata["dpt.best"] = metadata["dpt.early_best"] = metadata["dpt.plateau_best"] = "nan";
  const CheckpointHeader header = from_metadata("ckpt", metadata);
  CHECK_FALSE(header.state.best.has_value());
  CHECK_FALSE(header.state.early_best.has_value());
  CHECK_FALSE(header.state.plateau_best.has_value());
}

TEST_CASE("device weights under their former name are read") {
  Metadata metadata = good_metadata();
  metadata["dpt.shares"] = metadata.at("dpt.device_weights");
  metadata.erase("dpt.device_weights");
  CHECK(from_metadata("ckpt", metadata).state.device_weights ==
        std::vector<std::int64_t>{9988, 12});
  metadata.erase("dpt.shares");
  CHECK(error_of([&] { from_metadata("ckpt", metadata); }, "ckpt") ==
        "F: expected metadata 'dpt.device_weights', found none");
}

TEST_CASE("a file of dpt without its checksum is damaged, wherever it is read") {
  const TempDir folder;
  const Plan plan = small_plan();
  const std::string path = folder.file("a.safetensors");
  save_checkpoint(path, plan, small_checkpoint(plan));
  const std::string good = read_all(path);
  const std::string name = "dpt.integrity";
  const std::size_t at = good.find(name);
  REQUIRE(at != std::string::npos);
  for (std::size_t i = 0; i < name.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = good;
      bytes[at + i] = static_cast<char>(bytes[at + i] ^ (1 << bit));
      write_all_text(path, bytes);
      CAPTURE(bytes.substr(at, name.size()));
      CHECK(error_of([&] { SafetensorsFile::open(path); }, path) != "no error");
    }
  }
  std::string bytes = good;
  bytes[at + 4] = 'h';  // dpt.hntegrity
  write_all_text(path, bytes);
  const std::string error =
      "F: expected the checksum tensor 'dpt.integrity' at the end (the metadata 'dpt.averaged' "
      "says that dpt wrote the file), found 'dpt.hntegrity' as the last tensor: the file is "
      "damaged";
  std::vector<float> flat(static_cast<std::size_t>(plan.param_floats));
  CHECK(error_of([&] { SafetensorsFile::open(path); }, path).starts_with(error));
  CHECK(error_of([&] { load_checkpoint(path, plan); }, path).starts_with(error));
  CHECK(error_of([&] { read_checkpoint_header(path); }, path).starts_with(error));
  CHECK(error_of([&] { load_weights(weights_of(path), plan, nullptr, flat.data()); }, path)
            .starts_with(error));
}

TEST_CASE("a changed bit in what the header says is found before it is believed") {
  const TempDir folder;
  const Plan plan = small_plan();
  const std::string path = folder.file("a.safetensors");
  save_checkpoint(path, plan, small_checkpoint(plan));
  std::string bytes = read_all(path);
  const std::size_t at = bytes.find("digits-123");
  REQUIRE(at != std::string::npos);
  bytes[at + 7] = '7';
  write_all_text(path, bytes);
  CHECK(error_of([&] { read_checkpoint_header(path); }, path)
            .starts_with("F: the file is damaged: its bytes do not match its checksum"));
}

}  // namespace
}  // namespace dpt
