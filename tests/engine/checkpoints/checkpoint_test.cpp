// Checkpoints: the state of a run is saved and loaded bit for bit, and files that do not match the
// run are refused.
#include "engine/checkpoints/checkpoint.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "engine/checkpoints/retention.h"
#include "engine/checkpoints/run_metadata.h"
#include "engine/checkpoints/tensor_view.h"
#include "tests/engine/checkpoints/files.h"
#include "tests/engine/checkpoints/small_plan.h"
#include "tests/support/rewrite.h"
#include "tests/support/text.h"

namespace dpt {
namespace {

TEST_CASE("a checkpoint comes back as it was, every double and every float") {
  const TempDir folder;
  const std::string path = folder.file("a.safetensors");
  const Plan plan = small_plan();
  Checkpoint saved = small_checkpoint(plan);
  save_checkpoint(path, plan, saved);
  const Checkpoint loaded = load_checkpoint(path, plan);
  CHECK(loaded.params == saved.params);
  CHECK(loaded.optimizer == saved.optimizer);
  CHECK(loaded.state.step == 17);
  CHECK(loaded.state.epoch == 2);
  CHECK(loaded.state.position == 512);
  REQUIRE(loaded.state.best.has_value());
  CHECK(*loaded.state.best == 0.1 + 0.2);
  CHECK(loaded.state.best_step == 15);
  CHECK(loaded.state.early_best == 0.7);
  CHECK(loaded.state.bad_evaluations == 2);
  CHECK(loaded.state.epoch_loss_sum == 1.0 / 3.0);
  CHECK(loaded.state.epoch_correct == 500.25);
  CHECK(loaded.state.epoch_weight == 600.5);
  CHECK(loaded.state.epoch_labelled == 501);
  CHECK(loaded.state.epoch_sums == std::vector<double>{3, 0.1 + 0.2});
  CHECK(loaded.state.train_metrics == saved.state.train_metrics);
  CHECK(loaded.state.val_metrics == saved.state.val_metrics);
  CHECK(loaded.state.device_weights == std::vector<std::int64_t>{9988, 12});
  CHECK(loaded.state.best_monitor == "val/accuracy max");
  CHECK(loaded.state.best_checksum == "0123456789abcdef0123456789abcdef");
  CHECK(loaded.state.early_monitor == "val/loss min");
  CHECK(loaded.state.train_loss == 0.25);
  CHECK(loaded.state.train_accuracy == 2.0 / 3.0);
  CHECK(loaded.state.val_loss == 1.5);
  CHECK(loaded.state.val_accuracy == 0.1);
  CHECK(loaded.state.val_n == 20);
  CHECK(loaded.state.lr_scale == 0.125);
  CHECK(loaded.state.rollbacks == 3);
  CHECK(loaded.state.rollback_step == 11);
  CHECK(loaded.state.rollback_candidate == 13);
  CHECK(loaded.state.skipped_steps == 5);
  CHECK(loaded.state.skipped_in_row == 4);
  CHECK(loaded.state.epoch_skipped == 48);
  CHECK(loaded.state.schedule_segments == std::vector<std::int64_t>{0, 4, 6, 0});
  CHECK(loaded.state.best_average_of == "val/accuracy 0.6");
  CHECK(loaded.state.best_sum == 0.1);
  CHECK(loaded.state.best_weight == 0.2);
  CHECK(loaded.state.early_sum == 0.3);
  CHECK(loaded.state.early_weight == 0.4);
  CHECK(loaded.state.plateau_sum == 0.7);
  CHECK(loaded.state.plateau_weight == 0.8);
  CHECK(loaded.state.plateau_scale == 1.0 / 3.0);
  CHECK(loaded.state.plateau_best == 0.3 - 0.1);
  CHECK(loaded.state.plateau_bad == 1);
  CHECK(loaded.state.plateau_cooldown == 6);
  CHECK(loaded.state.averaged == 3);
  CHECK(loaded.checksum == SafetensorsFile::open(path).stored_checksum());
  CHECK(loaded.config == saved.config);
  CHECK(loaded.classes == saved.classes);
  CHECK(loaded.targets == TargetKind::multi_hot);
  CHECK(loaded.features == std::vector<std::string>{"width", "a \"height\""});
  CHECK(loaded.sample_type == DType::u8);
  CHECK(loaded.train_samples == 1797);
  CHECK(loaded.dataset_fingerprint == saved.dataset_fingerprint);
  CHECK(loaded.test_fingerprint == saved.test_fingerprint);
  CHECK(loaded.val_fingerprint == saved.val_fingerprint);
  CHECK(loaded.shards == 8);
  CHECK(loaded.devices == saved.devices);
  CHECK(loaded.made_by == saved.made_by);

  const CheckpointHeader header = read_checkpoint_header(path);
  CHECK(header.config == saved.config);
  CHECK(header.classes == saved.classes);
  CHECK(header.targets == TargetKind::multi_hot);
  CHECK(header.features == loaded.features);
  CHECK(header.sample_type == DType::u8);
  CHECK(header.train_samples == 1797);
  CHECK(header.state.step == 17);
  CHECK(header.shards == 8);
  CHECK(header.devices == saved.devices);
  CHECK(header.made_by == saved.made_by);
  CHECK(header.dataset_fingerprint == saved.dataset_fingerprint);
  CHECK(header.test_fingerprint == saved.test_fingerprint);
  CHECK(header.val_fingerprint == saved.val_fingerprint);
}

TEST_CASE("awkward numbers: none, extremes, denormals") {
  const TempDir folder;
  const std::string path = folder.file("a");
  const Plan plan = small_plan();
  Checkpoint saved = small_checkpoint(plan);
  saved.optimizer.clear();
  saved.state.step = std::int64_t{1} << 40;
  saved.state.best.reset();
  saved.state.epoch_loss_sum = std::numeric_limits<double>::denorm_min();
  saved.params[0] = -0.0F;
  saved.params[1] = std::numeric_limits<float>::denorm_min();
  saved.params[2] = std::numeric_limits<float>::max();
  save_checkpoint(path, plan, saved);
  Checkpoint loaded = load_checkpoint(path, plan);
  CHECK(loaded.optimizer.empty());
  CHECK_FALSE(loaded.state.best.has_value());
  CHECK(loaded.state.step == saved.state.step);
  CHECK(loaded.state.epoch_loss_sum == saved.state.epoch_loss_sum);
  CHECK(std::memcmp(loaded.params.data(), saved.params.data(), saved.params.size() * 4) == 0);

  saved.state.best = -std::numeric_limits<double>::infinity();
  save_checkpoint(path, plan, saved);
  CHECK(load_checkpoint(path, plan).state.best == saved.state.best);
}

TEST_CASE("tensors lie in the file as torchvision's, the optimizer's too") {
  const TempDir folder;
  const std::string path = folder.file("a");
  const Plan plan = small_plan();
  save_checkpoint(path, plan, small_checkpoint(plan));
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::vector<std::string> names;
  for (const TensorEntry& entry : file.tensors()) names.push_back(entry.name);
  CHECK(names == std::vector<std::string>{
                     "conv1.weight", "conv1.bias", "fc1.weight", "optim.exp_avg.conv1.weight",
                     "optim.exp_avg.conv1.bias", "optim.exp_avg.fc1.weight",
                     "optim.exp_avg_sq.conv1.weight", "optim.exp_avg_sq.conv1.bias",
                     "optim.exp_avg_sq.fc1.weight", "dpt.integrity"});
  for (const std::string prefix : {"", "optim.exp_avg."}) {
    const float first = prefix.empty() ? 17.0F : 1000.0F;
    const TensorEntry* conv = file.find(prefix + "conv1.weight");
    REQUIRE(conv);
    CHECK(conv->shape == std::vector<std::int64_t>{2, 3, 2, 2});
    const std::vector<float> oihw = file.read_floats(*conv);
    // Index (o, i, h, w) in the file is (o, h, w, i) in the buffer.
    for (int o = 0; o < 2; ++o) {
      for (int i = 0; i < 3; ++i) {
        for (int hw = 0; hw < 4; ++hw) {
          CHECK(oihw[(o * 3 + i) * 4 + hw] == first + static_cast<float>((o * 4 + hw) * 3 + i));
        }
      }
    }
    const std::vector<float> linear = file.read_floats(*file.find(prefix + "fc1.weight"));
    // Element (out 1, c 1, h 0, w 2) of the image 2 x 3 x 2 (h, w, c).
    CHECK(linear[12 + 6 + 2] == first + 24 + 2 + 12 + 2 * 2 + 1);
  }
}

TEST_CASE("values that are not finite are never saved") {
  const TempDir folder;
  const std::string path = folder.file("a");
  const Plan plan = small_plan();
  save_checkpoint(path, plan, small_checkpoint(plan));
  const std::string before = read_all(path);
  Checkpoint bad = small_checkpoint(plan, 18);
  bad.params[plan.params[1].offset + 1] = std::nanf("");
  CHECK(error_of([&] { save_checkpoint(path, plan, bad); }, path, ErrorKind::diverged) ==
        "F: not saved: 'conv1.bias' has the value nan at element 1; training has diverged; the "
        "last good checkpoint is kept");
  bad = small_checkpoint(plan, 18);
  bad.optimizer[1].second[0] = INFINITY;
  CHECK(error_of([&] { save_checkpoint(path, plan, bad); }, path, ErrorKind::diverged) ==
        "F: not saved: 'optim.exp_avg_sq.conv1.weight' has the value inf at element 0; training "
        "has diverged; the last good checkpoint is kept");
  // A NaN in the padding is ignored, because padding is not saved.
  bad = small_checkpoint(plan);
  bad.params[plan.params[1].offset + 2] = std::nanf("");
  CHECK(read_all(path) == before);
  CHECK_NOTHROW(save_checkpoint(path, plan, bad));
  CHECK(load_checkpoint(path, plan).params == small_checkpoint(plan).params);
}

TEST_CASE("values of a checkpoint that are not finite are its own defect") {
  const TempDir folder;
  const std::string path = folder.file("a"), bad = folder.file("b");
  const Plan plan = small_plan();
  save_checkpoint(path, plan, small_checkpoint(plan));
  const auto error_with = [&](const std::string& name, float value) {
    std::vector<float> values;
    testing::rewrite_checkpoint(path, bad, [&](Metadata&, std::vector<TensorView>& views) {
      for (TensorView& view : views) {
        if (view.name != name) continue;
        std::size_t count = 1;
        for (const std::int64_t size : view.shape) count *= static_cast<std::size_t>(size);
        values.assign(count, 0.5F);
        values.back() = value;
        view.data = values.data();
      }
    });
    return error_of([&] { load_checkpoint(bad, plan); }, bad);
  };
  CHECK(error_with("conv1.bias", 0) == "no error");
  CHECK(error_with("conv1.bias", -NAN) ==
        "F: tensor 'conv1.bias': expected finite numbers, found nan: the checkpoint itself has "
        "non-finite values; choose an older one");
  testing::check_contains(
      error_with("optim.exp_avg_sq.fc1.weight", INFINITY),
      "F: tensor 'optim.exp_avg_sq.fc1.weight': expected finite numbers, found inf");
}

TEST_CASE("schema versions: a newer minor is read, a newer major is refused by name") {
  const TempDir folder;
  const std::string path = folder.file("a"), other = folder.file("b");
  const Plan plan = small_plan();
  save_checkpoint(path, plan, small_checkpoint(plan));
  const auto with_version = [&](const std::string& version) {
    const float one = 1;
    testing::rewrite_checkpoint(path, other,
                                [&](Metadata& metadata, std::vector<TensorView>& views) {
                                  metadata["dpt.version"] = version;
                                  metadata["dpt.something_new"] = "?";
                                  views.push_back({"ema.conv1.bias", "F32", {1}, &one});
                                });
    return error_of([&] { load_checkpoint(other, plan); }, other);
  };
  CHECK(with_version(fmt::format("{}.{}", kSchemaMajor, kSchemaMinor + 1)) == "no error");
  CHECK(with_version("1.0") == "F: tensor 'ema.conv1.bias' is not in the config's model");
  const auto without_shares = [&](const std::string& version) {
    testing::rewrite_checkpoint(path, other, [&](Metadata& metadata, std::vector<TensorView>&) {
      metadata["dpt.version"] = version;
      metadata.erase("dpt.device_weights");
    });
    return error_of([&] { load_checkpoint(other, plan); }, other);
  };
  CHECK(without_shares("1.0") == "no error");
  CHECK(load_checkpoint(other, plan).state.device_weights.empty());
  CHECK(without_shares("1.1") == "F: expected metadata 'dpt.device_weights', found none");
  // The metadata that 1.4 introduced are missing in the files of 1.3.
  const auto without_later = [&](const std::string& version) {
    testing::rewrite_checkpoint(path, other, [&](Metadata& metadata, std::vector<TensorView>&) {
      metadata["dpt.version"] = version;
      for (const char* later : {"schedule_segments", "epoch_weight", "epoch_labelled", "epoch_sums",
                                "train_metrics", "val_metrics"}) {
        CHECK(metadata.erase(std::string("dpt.") + later) == 1);
      }
    });
    return error_of([&] { load_checkpoint(other, plan); }, other);
  };
  testing::rewrite_checkpoint(path, other, [&](Metadata& metadata, std::vector<TensorView>&) {
    metadata["dpt.version"] = "1.5";
    CHECK(metadata.erase("dpt.targets") == 1);
    CHECK(metadata.erase("dpt.features") == 1);
    CHECK(metadata.erase("dpt.sample_type") == 1);
    CHECK(metadata.erase("dpt.train_samples") == 1);
  });
  CHECK(!read_checkpoint_header(other).targets);
  CHECK(read_checkpoint_header(other).features.empty());
  CHECK(!read_checkpoint_header(other).sample_type);
  CHECK(read_checkpoint_header(other).train_samples == 0);
  CHECK(without_later("1.3") == "no error");
  CHECK(without_later("1.4") == "F: expected metadata 'dpt.schedule_segments', found none");
  CHECK(
      with_version("2.0") ==
      "F: was written by a newer dpt: its checkpoint version is 2.0, and this program reads up to "
      "1.x; use the dpt that wrote it, or a newer one");
  for (const std::string bad : {"", "1", "1.", "x.y", "1.0.0", "0.9", "-1.0", "99999999999.0"}) {
    CHECK(with_version(bad) ==
          "F: metadata 'dpt.version': expected MAJOR.MINOR, found '" + bad + "'");
  }
}

TEST_CASE("targets and types that are not known are refused, but of a newer release left out") {
  const TempDir folder;
  const std::string path = folder.file("a"), other = folder.file("b");
  const Plan plan = small_plan();
  save_checkpoint(path, plan, small_checkpoint(plan));
  const auto rewrite = [&](const std::string& version, const std::string& key,
                           const std::string& value) {
    testing::rewrite_checkpoint(path, other, [&](Metadata& metadata, std::vector<TensorView>&) {
      metadata["dpt.version"] = version;
      metadata[key] = value;
    });
  };
  rewrite("1.6", "dpt.targets", "boxes");
  CHECK(error_of([&] { read_checkpoint_header(other); }, other) ==
        "F: metadata 'dpt.targets': expected one of labels, soft_labels, multi_hot, values, found "
        "'boxes'");
  rewrite("1.99", "dpt.targets", "boxes");
  CHECK(!read_checkpoint_header(other).targets);
  rewrite("1.7", "dpt.sample_type", "i64");
  CHECK(error_of([&] { read_checkpoint_header(other); }, other) ==
        "F: metadata 'dpt.sample_type': expected u8 or fp32, found 'i64'");
  rewrite("1.99", "dpt.sample_type", "i64");
  CHECK(!read_checkpoint_header(other).sample_type);
}

TEST_CASE("a file that does not fit is refused, with the reason") {
  const TempDir folder;
  const std::string path = folder.file("a"), other = folder.file("b");
  const Plan plan = small_plan();
  save_checkpoint(path, plan, small_checkpoint(plan));
  using Views = std::vector<TensorView>;
  const auto text = [&](auto change) {
    testing::rewrite_checkpoint(path, other, change);
    return error_of([&] { load_checkpoint(other, plan); }, other);
  };
  CHECK(text([](Metadata& m, Views&) { m.erase("dpt.version"); }) ==
        "F: expected a checkpoint of dpt, found a safetensors file without 'dpt.version'; to load "
        "only its weights, use --weights");
  CHECK(text([](Metadata& m, Views&) { m.erase("dpt.step"); }) ==
        "F: expected metadata 'dpt.step', found none");
  CHECK(text([](Metadata& m, Views&) { m["dpt.step"] = "12x"; }) ==
        "F: metadata 'dpt.step': expected a 64-bit integer, found '12x'");
  CHECK(text([](Metadata& m, Views&) { m["dpt.step"] = "9223372036854775808"; }) ==
        "F: metadata 'dpt.step': expected a 64-bit integer, found '9223372036854775808'");
  CHECK(text([](Metadata& m, Views&) { m["dpt.best"] = ""; }) ==
        "F: metadata 'dpt.best': expected a number, found ''");
  CHECK(text([](Metadata& m, Views&) { m["dpt.device_weights"] = "9,,1"; }) ==
        "F: metadata 'dpt.device_weights': expected a 64-bit integer, found ''");
  CHECK(text([](Metadata& m, Views&) { m["dpt.classes"] = "[1]"; }) ==
        "F: metadata 'dpt.classes': expected a JSON list of strings, found '[1]'");
  CHECK(text([](Metadata& m, Views&) { m["dpt.devices"] = "{"; }) ==
        "F: metadata 'dpt.devices': expected a JSON list of strings, found '{'");
  CHECK(text([](Metadata&, Views& v) { v.erase(v.begin() + 1); }) ==
        "F: expected tensor 'conv1.bias' of the config's model, found none");
  CHECK(text([](Metadata&, Views& v) { v[4].name = "optim.exp_avg.conv9.bias"; }) ==
        "F: expected tensor 'optim.exp_avg.conv1.bias' of the config's model, found none");
  CHECK(text([](Metadata&, Views& v) {
          v[0].shape = {2, 2, 3, 2};
        }) ==
        "F: tensor 'conv1.weight': expected the shape [2, 3, 2, 2] of the config's model, found "
        "[2, 2, 3, 2]");
  CHECK(text([](Metadata&, Views& v) { v[1].dtype = "I32"; }) ==
        "F: tensor 'conv1.bias': expected F32, found I32");
  CHECK(text([](Metadata& m, Views&) { m["dpt.optimizer_states"] = "[\"exp_avg\"]"; }) ==
        "F: tensor 'optim.exp_avg_sq.conv1.weight' is not in the config's model");
}

TEST_CASE("a damaged checkpoint is refused, and the message names a good one") {
  const TempDir folder;
  const Plan plan = small_plan();
  const std::string path = folder.file(checkpoint_name(20));
  save_checkpoint(path, plan, small_checkpoint(plan, 20));
  std::string bytes = read_all(path);
  bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] ^ 4);
  write_all_text(path, bytes);
  CHECK(error_of([&] { load_checkpoint(path, plan); }, path) ==
        "F: the file is damaged: its bytes do not match its checksum; there is no good checkpoint "
        "in its folder");
  save_checkpoint(folder.file(checkpoint_name(10)), plan, small_checkpoint(plan, 10));
  CHECK(error_of([&] { load_checkpoint(path, plan); }, path) ==
        "F: the file is damaged: its bytes do not match its checksum; the newest good checkpoint "
        "in its folder is step-00000010.safetensors");
}

TEST_CASE("a foreign file and one of a later dpt are called that, not damaged") {
  const TempDir folder;
  const std::string path = folder.file("a"), other = folder.file("b");
  const Plan plan = small_plan();
  const auto both = [&](const std::string& file) {
    const std::string text = error_of([&] { load_checkpoint(file, plan); }, file);
    CHECK(error_of([&] { read_checkpoint_header(file); }, file) == text);
    return text;
  };
  write_all_text(path, raw_file("{}"));
  CHECK(both(path) ==
        "F: expected a checkpoint of dpt, found a safetensors file without 'dpt.version'; to load "
        "only its weights, use --weights");
  const auto flip_last = [](const std::string& file) {
    std::string bytes = read_all(file);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_all_text(file, bytes);
  };
  write_safetensors(path, {}, {});
  flip_last(path);
  CHECK(both(path) ==
        "F: the file is damaged: its bytes do not match its checksum; there is no good checkpoint "
        "in its folder");
  // In a file of a later major version even the checksum may have another meaning.
  save_checkpoint(path, plan, small_checkpoint(plan));
  testing::rewrite_checkpoint(path, other, [](Metadata& metadata, std::vector<TensorView>&) {
    metadata["dpt.version"] = "2.0";
  });
  flip_last(other);
  CHECK(both(other).starts_with("F: was written by a newer dpt: its checkpoint version is 2.0, "));
}

TEST_CASE("a message shows the first hundred bytes of a long wrong value") {
  const TempDir folder;
  const std::string path = folder.file("a");
  const Plan plan = small_plan();
  save_checkpoint(path, plan, small_checkpoint(plan));
  testing::rewrite_checkpoint(path, path, [](Metadata& metadata, std::vector<TensorView>&) {
    metadata["dpt.classes"] = std::string(99, 'x') + "yz";
  });
  CHECK(error_of([&] { load_checkpoint(path, plan); }, path) ==
        "F: metadata 'dpt.classes': expected a JSON list of strings, found '" +
            std::string(99, 'x') + "y'");
}

TEST_CASE("names of checkpoints, newest first") {
  CHECK(checkpoint_name(0) == "step-00000000.safetensors");
  CHECK(checkpoint_name(1234) == "step-00001234.safetensors");
  CHECK(checkpoint_name(123456789012) == "step-123456789012.safetensors");
  const TempDir folder;
  for (const char* name :
       {"step-00000009.safetensors", "step-123456789.safetensors", "step-00000100.safetensors",
        "step-9.safetensors", "step-.safetensors", "step-0000000x.safetensors",
        "step-00000007.safetensors.tmp", "best.safetensors", "step--0000001.safetensors"}) {
    write_all_text(folder.file(name), "");
  }
  CHECK(list_checkpoints(folder.path()) ==
        std::vector<std::string>{folder.file("step-123456789.safetensors"),
                                 folder.file("step-00000100.safetensors"),
                                 folder.file("step-00000009.safetensors")});
  CHECK(list_checkpoints(folder.file("missing")).empty());
  const std::string file = folder.file("best.safetensors");
  CHECK(error_of([&] { list_checkpoints(file); }, file) ==
        "F: cannot list the folder: Not a directory");
}

TEST_CASE("the newest good checkpoint: damaged and cut ones are reported and skipped") {
  const TempDir folder;
  const Plan plan = small_plan();
  std::vector<std::string> warnings;
  const auto newest = [&] {
    warnings.clear();
    return newest_good_checkpoint(folder.path(),
                                  [&](const std::string& line) { warnings.push_back(line); });
  };
  CHECK(newest() == "");
  for (std::int64_t step : {1, 2, 3, 4}) {
    save_checkpoint(folder.file(checkpoint_name(step)), plan, small_checkpoint(plan, step));
  }
  CHECK(newest() == folder.file(checkpoint_name(4)));
  CHECK(warnings.empty());
  const std::string bytes = read_all(folder.file(checkpoint_name(4)));
  write_all_text(folder.file(checkpoint_name(4)), bytes.substr(0, bytes.size() - 1));
  std::string flipped = bytes;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  write_all_text(folder.file(checkpoint_name(3)), flipped);
  CHECK(newest() == folder.file(checkpoint_name(2)));
  REQUIRE(warnings.size() == 2);
  CHECK(warnings[0].find(folder.file(checkpoint_name(4)) + ": tensor 'dpt.integrity': ends at") ==
        0);
  CHECK(warnings[1] ==
        folder.file(checkpoint_name(3)) +
            ": the file is damaged: its bytes do not match its checksum; it is skipped");
}

TEST_CASE("a file without a checksum is not a good checkpoint, whatever its name") {
  const TempDir folder;
  const Plan plan = small_plan();
  save_checkpoint(folder.file(checkpoint_name(1)), plan, small_checkpoint(plan, 1));
  write_all_text(folder.file(checkpoint_name(2)), raw_file("{}"));
  std::vector<std::string> warnings;
  CHECK(newest_good_checkpoint(folder.path(), [&](const std::string& line) {
          warnings.push_back(line);
        }) == folder.file(checkpoint_name(1)));
  CHECK(warnings == std::vector<std::string>{folder.file(checkpoint_name(2)) +
                                             ": has no checksum 'dpt.integrity'; it is skipped"});
  // A file without a checksum does not displace a good one either.
  apply_retention(folder.path(), 1);
  CHECK(std::filesystem::exists(folder.file(checkpoint_name(1))));
}

TEST_CASE("only the temporary files of checkpoints are removed") {
  const TempDir folder;
  const char* const stay[] = {".safetensors.tmp", "notes-about-this-run.txt.tmp", "x.tmp",
                              "x.safetensors.tmp", "x.safetensors.tmp.txt"};
  for (const char* name : stay) write_all_text(folder.file(name), "mine");
  const std::string half = folder.file(checkpoint_name(3) + ".tmp");
  write_all_text(half, "half a file");
  apply_retention(folder.path(), 1);
  for (const char* name : stay) {
    CAPTURE(name);
    CHECK(std::filesystem::exists(folder.file(name)));
  }
  CHECK_FALSE(std::filesystem::exists(half));
}

TEST_CASE("retention keeps the newest good ones; a damaged one cannot push out a good one") {
  const TempDir folder;
  const Plan plan = small_plan();
  const auto steps = [&] {
    std::vector<std::int64_t> kept;
    for (const std::string& path : list_checkpoints(folder.path())) {
      kept.push_back(std::stoll(path.substr(path.rfind('-') + 1)));
    }
    return kept;
  };
  using Steps = std::vector<std::int64_t>;
  for (std::int64_t step : {1, 2, 3, 4, 5}) {
    save_checkpoint(folder.file(checkpoint_name(step)), plan, small_checkpoint(plan, step));
  }
  write_all_text(folder.file("step-00000006.safetensors.tmp"), "half a file");
  write_all_text(folder.file("best.safetensors"), "not ours to remove");
  apply_retention(folder.path(), 3);
  CHECK(steps() == Steps{5, 4, 3});
  CHECK_FALSE(std::filesystem::exists(folder.file("step-00000006.safetensors.tmp")));
  CHECK(std::filesystem::exists(folder.file("best.safetensors")));

  write_all_text(folder.file(checkpoint_name(5)), "damaged");
  apply_retention(folder.path(), 1);
  CHECK(steps() == Steps{5, 4});
  apply_retention(folder.path(), 0);  // at least one good file stays
  CHECK(steps() == Steps{5, 4});
  apply_retention(folder.file("missing"), 2);
}

TEST_CASE("retention knows its own files, those that are needed, and those of another branch") {
  const TempDir folder;
  const Plan plan = small_plan();
  const auto path = [&](std::int64_t step) { return folder.file(checkpoint_name(step)); };
  const auto steps = [&] {
    std::vector<std::int64_t> kept;
    for (const std::string& each : list_checkpoints(folder.path())) {
      kept.push_back(step_of_checkpoint(std::filesystem::path(each).filename().string()));
    }
    return kept;
  };
  using Steps = std::vector<std::int64_t>;
  const auto none = [](std::int64_t) { return false; };
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& text) { warnings.push_back(text); };
  for (const std::int64_t step : {1, 2, 3, 4, 5, 9}) {
    save_checkpoint(path(step), plan, small_checkpoint(plan, step));
  }
  Retention retention(folder.path(), 2);
  retention.pin(1);
  // Step 9 belongs to an abandoned branch: its file stays and does not count.
  retention.apply(
      5, [](std::int64_t step) { return step == 2; }, warn);
  CHECK(steps() == Steps{9, 5, 4, 2, 1});
  retention.apply(5, none, warn);
  CHECK(steps() == Steps{9, 5, 4, 1});

  // A damaged file is detected although it was verified before, even if its modification time is
  // set back. It displaces no good file.
  const auto time = std::filesystem::last_write_time(path(5));
  const std::string good = read_all(path(5));
  std::string bytes = good;
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_all_text(path(5), bytes);
  std::filesystem::last_write_time(path(5), time);
  save_checkpoint(path(3), plan, small_checkpoint(plan, 3));
  retention.apply(5, none, warn);
  CHECK(steps() == Steps{9, 5, 4, 3, 1});
  write_all_text(path(5), good);
  retention.apply(5, none, warn);
  CHECK(steps() == Steps{9, 5, 4, 1});
  CHECK(warnings.empty());
}

}  // namespace
}  // namespace dpt
