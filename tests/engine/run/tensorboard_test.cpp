// Event files: framing and checksums against known vectors, the values that become scalars, the
// older files after a resume, and disk errors. tests/cli uses TensorBoard's reader.
#include "engine/run/tensorboard.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <tensorboard.pb.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/run/run_log.h"
#include "engine/run/tf_records.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;
namespace fs = std::filesystem;

namespace {

/// Returns "tag step value" of the scalars in a file, "file ..." and "start STEP" for other
/// records, and "cut" if the file ends in an incomplete record.
std::vector<std::string> events_in(const std::string& path) {
  std::vector<std::string> texts;
  const std::string bytes = read_whole_file(path);
  std::string_view rest = bytes, payload;
  while (next_tf_record(rest, payload)) {
    tensorboard::Event event;
    REQUIRE(event.ParseFromArray(payload.data(), static_cast<int>(payload.size())));
    CHECK(event.wall_time() > 1.7e9);
    if (event.has_file_version()) texts.push_back("file " + event.file_version());
    if (event.has_session_log()) texts.push_back(fmt::format("start {}", event.step()));
    for (const tensorboard::Value& value : event.summary().value()) {
      texts.push_back(fmt::format("{} {} {}", value.tag(), event.step(), value.simple_value()));
    }
  }
  if (!rest.empty()) texts.emplace_back("cut");
  return texts;
}

std::vector<std::string> files_of(const std::string& run) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(run + "/tensorboard")) {
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// A log with the event files that follow it, as in a process of a run.
struct Both {
  std::vector<std::string> warnings;
  RunLog log;
  TensorBoardLog board;
  explicit Both(const std::string& run)
      : log(run + "/metrics.jsonl"),
        board(
            run, [this](const std::string& text) { warnings.push_back(text); }, Json::object()) {
    log.follow([this](const char* name, const Json& fields) { board.event(name, fields); });
  }
  void step(std::int64_t step) {
    log.event("step", {{"epoch", 1}, {"step", step}, {"loss", 0.5 * static_cast<double>(step)}});
  }
};

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("CRC-32C of the vectors of RFC 3720, and records as TensorFlow writes them") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xE3069283U);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAU);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62A8AB43U);
  std::string ascending, descending;
  for (int i = 0; i < 32; ++i) ascending += static_cast<char>(i);
  descending.assign(ascending.rbegin(), ascending.rend());
  CHECK(crc32c(ascending) == 0x46DD794EU);
  CHECK(crc32c(descending) == 0x113FDB5CU);
  // The first record of every event file, without its time: the version, {3: "brain.Event:2"}.
  const std::string payload =
      "\x1a\x0d"
      "brain.Event:2";
  const std::string record = tf_record(payload);
  CHECK(record.size() == 12 + payload.size() + 4);
  CHECK(record.substr(0, 8) == std::string("\x0f\0\0\0\0\0\0\0", 8));
  // Computed with the tensorboard package: masked_crc32c of the length, and of the payload.
  CHECK(masked_crc32c(record.substr(0, 8)) == 0x092B536DU);
  CHECK(masked_crc32c(payload) == 0x295198FCU);
}

TEST_CASE("records that are cut off or damaged end the file") {
  const std::string two = tf_record("first") + tf_record("");
  std::string_view rest = two, payload;
  CHECK(next_tf_record(rest, payload));
  CHECK(payload == "first");
  CHECK(next_tf_record(rest, payload));
  CHECK(payload.empty());
  CHECK(rest.empty());
  CHECK_FALSE(next_tf_record(rest, payload));
  const std::string one = tf_record("first");
  for (std::size_t size = 0; size < one.size(); ++size) {
    std::string_view cut = std::string_view(one).substr(0, size);
    CHECK_FALSE(next_tf_record(cut, payload));
  }
  for (std::size_t at = 0; at < one.size(); ++at) {
    std::string damaged = one;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    std::string_view view = damaged;
    CHECK_FALSE(next_tf_record(view, payload));
  }
}

TEST_CASE("lines of the log become scalars, at once") {
  const TempDir dir;
  Both both(dir.path());
  both.step(1);  // before run_start, so it belongs to no run
  CHECK_FALSE(fs::exists(dir.file("tensorboard")));
  both.log.event("run_start", {{"run", "x"}, {"step", 0}});
  both.log.event("step", {{"epoch", 1},
                          {"step", 5},
                          {"loss", 0.25},
                          {"lr", NAN},
                          {"grad_norms", {{"fc.weight", 2.0}}},
                          {"text", "no number"}});
  both.log.event("device_weights", {{"step", 5}, {"x", 1.0}});
  const std::vector<std::string> files = files_of(dir.path());
  REQUIRE(files.size() == 1);
  check_contains(files[0], "/events.out.tfevents.");
  CHECK(events_in(files[0]) == Texts{"file brain.Event:2", "start 1", "train/loss 5 0.25",
                                     "train/lr 5 nan", "train/grad_norms/fc.weight 5 2"});
  both.log.event("epoch", {{"epoch", 1}, {"step", 6}, {"loss", 0.5}});
  both.log.event("eval", {{"epoch", 1}, {"step", 6}, {"split", "val"}, {"accuracy", 0.75}});
  const Texts all = events_in(files[0]);
  CHECK(Texts(all.begin() + 5, all.end()) ==
        Texts{"train_epoch/loss 6 0.5", "val/accuracy 6 0.75"});
}

TEST_CASE(
    "a resumed run and a rollback continue in new files, without the steps that are repeated") {
  const TempDir dir;
  {
    Both killed(dir.path());
    killed.log.event("run_start", {{"step", 0}});
    for (const std::int64_t step : {1, 2, 3, 4}) killed.step(step);
    killed.log.event("eval", {{"epoch", 1}, {"step", 3}, {"split", "val"}, {"loss", 1.0}});
  }
  // A crash in the middle of a record.
  const std::string first = files_of(dir.path())[0];
  fs::resize_file(first, fs::file_size(first) - 3);
  CHECK(abandon_log_lines(dir.path(), 2, 0) == 3);
  {
    Both resumed(dir.path());
    resumed.log.event("run_start", {{"step", 2}});
    resumed.step(3);
    resumed.step(4);
    CHECK(resumed.warnings.empty());
    const std::vector<std::string> files = files_of(dir.path());
    REQUIRE(files.size() == 2);
    CHECK(events_in(files[0]) ==
          Texts{"file brain.Event:2", "start 1", "train/loss 1 0.5", "train/loss 2 1"});
    CHECK(events_in(files[1]) ==
          Texts{"file brain.Event:2", "start 3", "train/loss 3 1.5", "train/loss 4 2"});
    // A rollback to step 3 in the same process.
    CHECK(abandon_log_lines(dir.path(), 3, 0) == 1);
    resumed.log.reopen();
    resumed.log.event("rollback", {{"step", 3}, {"bad_step", 5}});
    resumed.step(4);
  }
  std::vector<std::string> files = files_of(dir.path());
  REQUIRE(files.size() == 3);
  CHECK(events_in(files[1]) == Texts{"file brain.Event:2", "start 3", "train/loss 3 1.5"});
  CHECK(events_in(files[2]) == Texts{"file brain.Event:2", "start 4", "train/loss 4 2"});
  // Back to the beginning: files without any remaining step are removed.
  CHECK(abandon_log_lines(dir.path(), -1, -1) > 0);
  Both again(dir.path());
  again.log.event("run_start", {{"step", 0}});
  files = files_of(dir.path());
  REQUIRE(files.size() == 1);
  CHECK(events_in(files[0]) == Texts{"file brain.Event:2", "start 1"});
}

TEST_CASE("a full disk costs events, not the file and not the run") {
  const TempDir dir;
  Both both(dir.path());
  both.log.event("run_start", {{"step", 0}});
  both.step(1);
  const std::string path = files_of(dir.path())[0];
  rlimit usual{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &usual) == 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  // The write fails in the middle of a record. The log, which is longer than the event file,
  // exceeds the limit too and loses its lines.
  const rlimit small{fs::file_size(path) + 20, usual.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  both.step(2);
  both.step(3);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &usual) == 0);
  ::signal(SIGXFSZ, old_handler);
  both.step(4);
  REQUIRE(both.warnings.size() == 1);
  check_contains(both.warnings[0], path + ": cannot write: File too large; the run continues");
  CHECK(events_in(path) ==
        Texts{"file brain.Event:2", "start 1", "train/loss 1 0.5", "train/loss 4 2"});
  // A file has the name of the folder.
  const TempDir other;
  write_file_atomically(other.file("tensorboard"), "mine");
  Both none(other.path());
  none.log.event("run_start", {{"step", 0}});
  none.step(1);
  REQUIRE(none.warnings.size() == 1);
  check_contains(none.warnings[0], other.file("tensorboard"));
  CHECK(read_whole_file(other.file("tensorboard")) == "mine");
}

TEST_CASE("the newest file begins with the hyperparameters, as TensorBoard's plugin reads them") {
  const TempDir run;
  RunLog log(run.file("metrics.jsonl"));
  TensorBoardLog board(run.path(), {},
                       {{"optimizer.lr", 0.5}, {"optimizer.type", "SGD"}, {"nesterov", true}});
  log.follow([&](const char* name, const Json& fields) { board.event(name, fields); });
  for (int start = 0; start < 2; ++start) {
    log.event("run_start", {{"step", start}});
    log.event("step", {{"step", start + 1}, {"loss", 1.0}});
  }
  for (const std::string& path : files_of(run.path())) {
    const std::string bytes = read_whole_file(path);
    std::string_view rest = bytes, payload;
    int found = 0;
    while (next_tf_record(rest, payload)) {
      tensorboard::Event event;
      REQUIRE(event.ParseFromArray(payload.data(), static_cast<int>(payload.size())));
      if (event.summary().value_size() == 0 || !event.summary().value(0).has_metadata()) continue;
      ++found;
      CHECK(event.summary().value(0).tag() == "_hparams_/session_start_info");
      const auto& plugin = event.summary().value(0).metadata().plugin_data();
      CHECK(plugin.plugin_name() == "hparams");
      tensorboard::HparamsPluginData data;
      REQUIRE(data.ParseFromString(plugin.content()));
      const auto& hparams = data.session_start_info().hparams();
      CHECK(hparams.size() == 3);
      CHECK(hparams.at("optimizer.lr").number_value() == 0.5);
      CHECK(hparams.at("optimizer.type").string_value() == "SGD");
      CHECK(hparams.at("nesterov").bool_value());
    }
    // A new start removes the record of the hyperparameters from older files, so only the newest
    // file must have one.
    CHECK(found <= 1);
    if (path == files_of(run.path()).back()) CHECK(found == 1);
  }
}
