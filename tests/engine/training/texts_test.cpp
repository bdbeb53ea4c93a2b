// Small functions whose results are only read by people, and the message about a failed rank.
#include <doctest/doctest.h>

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <regex>
#include <stdexcept>

#include "engine/config/read_spec.h"
#include "engine/data/data_sets.h"
#include "engine/graph/make_plan.h"
#include "engine/graph/memory_schedule.h"
#include "engine/run/progress.h"
#include "engine/self_check/self_check.h"
#include "kernels/base/heartbeat.h"
#include "kernels/base/user_cache.h"
#include "kernels/devices.h"
#include "tests/engine/training/run.h"
#include "tests/support/pseudo_terminal.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;

TEST_CASE("durations and rates at the borders of their forms") {
  CHECK(format_duration(0) == "0:00");
  CHECK(format_duration(0.49) == "0:00");
  CHECK(format_duration(0.51) == "0:01");
  CHECK(format_duration(59.4) == "0:59");
  CHECK(format_duration(59.6) == "1:00");
  CHECK(format_duration(61) == "1:01");
  CHECK(format_duration(3599) == "59:59");
  CHECK(format_duration(3600) == "1:00:00");
  CHECK(format_duration(3723) == "1:02:03");
  CHECK(format_duration(100 * 3600) == "100:00:00");
  CHECK(format_duration(-1) == "?");
  CHECK(format_duration(INFINITY) == "?");
  CHECK(format_duration(std::numeric_limits<double>::quiet_NaN()) == "?");

  CHECK(format_rate(0) == "0");
  CHECK(format_rate(949.6) == "950");
  CHECK(format_rate(9999) == "9999");
  CHECK(format_rate(10000) == "10.0k");
  CHECK(format_rate(12345) == "12.3k");
  CHECK(format_rate(999949) == "999.9k");
  CHECK(format_rate(1e6) == "1.0M");
  CHECK(format_rate(1.25e6) == "1.2M");
}

namespace {

std::vector<DeviceName> cpu_devices(int count) {
  return std::vector<DeviceName>(static_cast<std::size_t>(count));
}

/// Returns the error of run_ranks when rank `bad` of `count` throws `error` and the others wait.
template <class Thrown>
std::string failure_of(int count, int bad, const Thrown& error) {
  try {
    run_ranks(cpu_devices(count), {}, [&](Backend&, Communicator& communicator) {
      if (communicator.rank() == bad) throw error;
      communicator.barrier();
    });
  } catch (const std::exception& caught) {
    return caught.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("a failure on one rank is the failure of the run, and says which device it was") {
  const Error device(ErrorKind::device, "no memory left");
  CHECK(failure_of(3, 1, device) == "replica 1 on cpu: no memory left");
  CHECK(failure_of(2, 0, device) == "replica 0 on cpu: no memory left");
  CHECK(failure_of(1, 0, device) == "no memory left");
  // Other kinds are reported unchanged.
  CHECK(failure_of(3, 2, Error(ErrorKind::data, "a broken file")) == "a broken file");
  CHECK(failure_of(3, 2, std::runtime_error("a surprise")) == "a surprise");
  CHECK(failure_of(2, 5, device) == "nothing");
  // Exceptions that neither dpt nor the standard library defines are reported unchanged, too.
  for (const int count : {1, 2}) {
    CAPTURE(count);
    CHECK_THROWS_AS(run_ranks(cpu_devices(count), {},
                              [](Backend&, Communicator& communicator) {
                                if (communicator.rank() == communicator.size() - 1) throw 7;
                                communicator.barrier();
                              }),
                    int);
  }
}

TEST_CASE("the cause is reported even if its consequence ends first") {
  std::string told;
  try {
    run_ranks(cpu_devices(2), {}, [&](Backend&, Communicator& communicator) {
      if (communicator.rank() == 0) throw Error(ErrorKind::peer, "another rank failed");
      try {
        communicator.barrier();
      } catch (const Error&) {
        // Rank 0 has failed.
      }
      throw Error(ErrorKind::data, "a broken file");
    });
  } catch (const std::exception& caught) {
    told = caught.what();
  }
  CHECK(told == "a broken file");
}

TEST_CASE("a split by its name, if it has samples") {
  const Job job = small_job(small_config("{type: SGD, lr: 0.1}"), {cpus(1)});
  CHECK(&split_by_name(job, "train") == &job.data.evaluated_train);
  CHECK(&split_by_name(job, "val") == &job.data.splits.val);
  CHECK(&split_by_name(job, "test") == &job.data.splits.test);
  CHECK(job.data.splits.train.size() == 53);
  CHECK(job.data.splits.val.size() == 7);
  CHECK(job.data.splits.test.size() == 23);
  CHECK_THROWS_WITH_AS(split_by_name(job, "tset"), doctest::Contains("'tset'"), Error);
  const Job without =
      small_job(small_config("{type: SGD, lr: 0.1}"), {cpus(1), "data.val_split=0"});
  CHECK_THROWS_WITH_AS(split_by_name(without, "val"), doctest::Contains("data.val_split"), Error);
}

TEST_CASE("a job's counts: steps, batches, and what exact mode needs") {
  const std::string config = small_config("{type: SGD, lr: 0.1}");
  const Job job = small_job(config, {cpus(2)});
  CHECK(job.data.steps_per_epoch == 5);
  CHECK(job.update.total_steps == 20);
  CHECK(job.placement.ranks() == 2);
  CHECK(job.batch_range(0).begin == 0);
  CHECK(job.batch_range(0).end == 12);
  CHECK(job.batch_range(4).begin == 48);
  CHECK(job.batch_range(4).end == 53);
  CHECK(small_job(config, {cpus(1), "data.batch_size=53"}).data.steps_per_epoch == 1);
  CHECK(small_job(config, {cpus(1), "data.batch_size=52"}).data.steps_per_epoch == 2);
  CHECK(small_job(config, {cpus(1), "data.batch_size=1000"}).data.steps_per_epoch == 1);
  // The number of replicas equals the number of shards, or exceeds it by one.
  CHECK(small_job(config, {cpus(3), "train.shards=3"}).placement.ranks() == 3);
  CHECK_THROWS_WITH_AS(small_job(config, {cpus(4), "train.shards=3"}),
                       doctest::Contains("train.shards=4"), Error);
  CHECK_THROWS_AS(small_job(config, {cpus(2), "device_weights=[1,2,3]"}), Error);
}

TEST_CASE("auto: no more replicas than a batch has samples, nor than there are at all") {
  const std::string config = small_config("{type: SGD, lr: 0.1}");
  CHECK(small_job(config, {"devices=auto", "data.batch_size=1"}).placement.ranks() == 1);
  // Seven of the eight samples are held out for validation.
  CHECK(small_job(config, {"devices=auto", "data.size=8"}).placement.ranks() == 1);
}

TEST_CASE("micro-batches: multiples of eight that fit a cache, or 32 that fit in memory") {
  const auto limit = [](std::int64_t channels) {
    const Job job =
        small_job(small_config("{type: SGD, lr: 0.1}"),
                  {cpus(1), "model.layers.conv1.out_channels=" + std::to_string(channels)});
    const std::int64_t micro_batch =
        micro_batch_limit(job.model.plan, job.placement.devices[0].traits());
    const std::int64_t bytes = estimate_memory(job.model.plan, 1, 0).activations;
    CHECK(micro_batch % 8 == 0);
    // The micro-batch is the largest that fits into 1 MiB, but has at least 32 and at most 256
    // samples. If 32 samples exceed 512 MiB, it is the largest that fits into 512 MiB, but has at
    // least 8 samples.
    if (micro_batch > 32) CHECK(micro_batch * bytes <= 1 << 20);
    if (micro_batch >= 32 && micro_batch < 256) CHECK((micro_batch + 8) * bytes > 1 << 20);
    if (micro_batch > 8) CHECK(micro_batch * bytes <= 1 << 29);
    if (micro_batch < 32) CHECK((micro_batch + 8) * bytes > 1 << 29);
    CHECK(job.placement.max_micro_batch == micro_batch);
    return micro_batch;
  };
  CHECK(limit(1) == 256);
  CHECK(limit(64) < 256);
  CHECK(limit(1024) == 32);
  // With images as large as ImageNet's, 512 MiB hold fewer than 32.
  const Plan large =
      make_plan(load_spec_text(catalog(),
                               "data: {dataset: synthetic, size: 8, classes: 4, batch_size: 4}\n"
                               "model: {zoo: vgg16, input: [3, 224, 224], classes: 4}\n"
                               "optimizer: {type: SGD, lr: 0.1}\ntrain: {epochs: 1}\n",
                               "large.yaml", {}));
  const std::int64_t bytes = estimate_memory(large, 1, 0, 0).activations;
  const std::int64_t few = micro_batch_limit(large, parse_device("cpu").traits());
  CHECK(few == std::max<std::int64_t>(8, (std::int64_t{512} << 20) / bytes / 8 * 8));
  CHECK(few < 32);
}

TEST_CASE("how a run ended: its name in the log, and the exit code of a stop") {
  CHECK(std::string(name_of(RunEnd::complete)) == "ok");
  CHECK(std::string(name_of(RunEnd::max_steps)) == "max_steps");
  CHECK(std::string(name_of(RunEnd::stopped)) == "stopped");
  const std::tuple<StopReason, int, const char*> stops[] = {
      {StopReason::none, 0, "none"},           {StopReason::interrupt, 130, "SIGINT"},
      {StopReason::terminate, 143, "SIGTERM"}, {StopReason::hangup, 129, "SIGHUP"},
      {StopReason::user, 75, "SIGUSR1"},       {StopReason::time_is_up, 75, "--max-time"},
      {StopReason::user2, 75, "SIGUSR2"},      {StopReason::cpu_time, 75, "SIGXCPU"}};
  for (const auto& [reason, code, name] : stops) {
    CAPTURE(name);
    CHECK(exit_code_of(reason) == code);
    CHECK(std::string(name_of(reason)) == name);
    CHECK(exit_code_of(stop_of_exit_code(code)) == code);
  }
  for (const int failure : {1, 2, 3, 4, 5, 6, 7, 139}) {
    CHECK(stop_of_exit_code(failure) == StopReason::none);
  }
  CHECK(acknowledgement_of(StopReason::user) ==
        "stopping as soon as the state can be saved (SIGUSR1)");
  check_contains(acknowledgement_of(StopReason::interrupt),
                 "(SIGINT); Ctrl-C again ends the run at once, without a checkpoint");
  check_contains(acknowledgement_of(StopReason::terminate),
                 "(SIGTERM); a second SIGTERM ends the run at once, without a checkpoint");
}

TEST_CASE("the config's effects on the devices' libraries and on patience") {
  const std::string config = small_config(kSgd);
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
  const auto set = [](const char* name, const std::optional<std::string>& value) {
    if (value) {
      setenv(name, value->c_str(), 1);
    } else {
      unsetenv(name);
    }
  };
  const auto cache = variable("XDG_CACHE_HOME"), home = variable("HOME");
  set("HOME", "/home/x");
  set("XDG_CACHE_HOME", "/c");
  CHECK(user_cache_path("cuda-plans.json") == "/c/dpt/cuda-plans.json");
  CHECK(small_job(config, {cpus(1)}).placement.backend_options.plan_cache ==
        "/c/dpt/cuda-plans.json");
  CHECK_FALSE(small_job(config, {cpus(1)}).placement.backend_options.exact);
  // Exact mode does not depend on earlier timings.
  const Job exact = small_job(config, {cpus(1), "train.shards=2"});
  CHECK(exact.placement.backend_options.exact);
  CHECK(exact.placement.backend_options.plan_cache.empty());
  CHECK(small_job(config, {cpus(1), "train.autotune=false"})
            .placement.backend_options.plan_cache.empty());
  for (const std::optional<std::string>& none :
       {std::optional<std::string>(""), std::optional<std::string>()}) {
    set("XDG_CACHE_HOME", none);
    CHECK(user_cache_path("cuda-plans.json") == "/home/x/.cache/dpt/cuda-plans.json");
  }
  set("HOME", std::nullopt);
  CHECK(user_cache_path("cuda-plans.json").empty());
  set("XDG_CACHE_HOME", cache);
  set("HOME", home);

  CHECK(stall_timeout(small_job(config, {cpus(1)}).spec) == std::chrono::minutes(10));
  CHECK(stall_timeout(small_job(config, {cpus(1), "train.stall_timeout=1.5"}).spec) ==
        std::chrono::milliseconds(1500));
  const Job job = small_job(config, {cpus(1), "data.prefetch=7", "data.workers=3"});
  CHECK(loader_options(job).prefetch == 7);
  CHECK(loader_options(job).decoders->threads() == 3);
  TrainSpec spec = job.spec;
  spec.model.input = {3, 8, 9};
  const DataRequirements wanted = data_requirements(spec, job.model.plan);
  CHECK(wanted.input.c == 3);
  CHECK(wanted.input.h == 8);
  CHECK(wanted.input.w == 9);
  CHECK(wanted.classes == 4);
}

TEST_CASE("messages stand in train.log with time and level, warnings by name") {
  const TempDir folder;
  {
    Progress progress(true);
    progress.info("before");
    progress.also_to(folder.file("train.log"));
    progress.info("usual {}");
    progress.warn("odd");
    // The lines are written at once.
    CHECK(count_of(read_whole_file(folder.file("train.log")), "\n") == 2);
    progress.status(0.5, {StatusPart{{"soon after the last message"}, 0}});
    std::filesystem::create_directory(folder.file("taken"));
    progress.also_to(folder.file("taken"));
  }
  const std::string text = read_whole_file(folder.file("train.log"));
  const std::string time = R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d)";
  CHECK(std::regex_search(text, std::regex("^" + time + " info usual \\{\\}\n" + time +
                                           " warning warning: odd\n" + time +
                                           " warning warning: .*taken: cannot write: .*; "
                                           "the run continues without it\n$")));
}

namespace {

/// Returns the output that a terminal with this many columns receives from a process that runs
/// `says`.
std::string on_terminal(unsigned short columns, const std::function<void(Progress&)>& says,
                        bool silent = false, const char* kind = "xterm") {
  winsize size{};
  size.ws_row = 4;
  size.ws_col = columns;
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, &size);
  REQUIRE(pid >= 0);
  if (pid == 0) {
    setenv("TERM", kind, 1);
    setenv("NO_COLOR", "1", 1);
    unsetenv("XTERM_VERSION");
    {
      Progress progress(silent);
      says(progress);
    }
    _exit(0);
  }
  std::string output;
  char buffer[256];
  for (ssize_t n; (n = read(terminal, buffer, sizeof buffer)) > 0;) {
    output.append(buffer, static_cast<std::size_t>(n));
  }
  close(terminal);
  waitpid(pid, nullptr, 0);
  return output;
}

}  // namespace

TEST_CASE("the bar: its cells, its width, and messages above it") {
  if (!has_pseudo_terminals()) return;
  const std::string clear = "\r\x1b[K";
  const auto part = [](const std::string& text) {
    return std::vector<StatusPart>{StatusPart{{text}, 0}};
  };
  CHECK(on_terminal(100, [&](Progress& p) { p.status(0.5, part("half")); }) ==
        clear + "[" + std::string(12, '=') + std::string(12, ' ') + "] half" + clear);
  CHECK(on_terminal(100,
                    [&](Progress& p) {
                      p.status(0, part("a"));
                      p.status(1, part("b"));
                      p.status(1.5, part("c"));
                      p.status(-0.1, part("d"));
                    }) == clear + "[" + std::string(24, ' ') + "] a" + clear + "[" +
                              std::string(24, '=') + "] b" + clear + "[" + std::string(24, '=') +
                              "] c" + clear + "[" + std::string(24, ' ') + "] d" + clear);
  CHECK(on_terminal(0, [&](Progress& p) { p.status(1, part(std::string(100, 'x'))); }) ==
        clear + "[" + std::string(24, '=') + "] " + clear);
  CHECK(on_terminal(100,
                    [&](Progress& p) {
                      p.info("one");
                      p.status(1, part("bar"));
                      p.warn("two");
                      p.clear();
                      p.clear();
                      p.info("three");
                    }) == "one\r\n" + clear + "[" + std::string(24, '=') + "] bar" + clear +
                              "warning: two\r\n[" + std::string(24, '=') + "] bar" + clear +
                              "three\r\n");
  CHECK(on_terminal(
            100,
            [&](Progress& p) {
              p.info("one");
              p.status(1, part("bar"));
            },
            true)
            .empty());
}

TEST_CASE("a narrow bar loses its cells first, then what matters least, and cuts no number") {
  const std::vector<StatusPart> parts = {{{"epoch 104/1000 (38 %)", "epoch 104/1000"}, 2},
                                         {{"step 2885/28000"}, 4},
                                         {{"loss 0.0001"}, 5},
                                         {{"val accuracy 0.9312"}, 1},
                                         {{"73.1k images/s", "73.1k/s"}, 3},
                                         {{"1:02:03 left", "1:02:03"}, 6}};
  const auto shown = [&](std::size_t room) { return bar_line(0.5, parts, room); };
  const std::string begin = "epoch 104/1000 (38 %)  step 2885/28000  loss 0.0001  ";
  const std::string all = begin + "val accuracy 0.9312  73.1k images/s  1:02:03 left";
  CHECK(shown(200) == "[" + std::string(12, '=') + std::string(12, ' ') + "] " + all);
  CHECK(shown(all.size() + 27) == shown(200));
  CHECK(shown(all.size() + 26) == "[" + std::string(11, '=') + std::string(12, ' ') + "] " + all);
  CHECK(shown(all.size() + 11) == "[====    ] " + all);
  CHECK(shown(all.size() + 10) == all);
  CHECK(shown(all.size()) == all);
  CHECK(shown(99) == "[=======        ] " + begin + "73.1k images/s  1:02:03 left");
  CHECK(shown(80) == "epoch 104/1000  step 2885/28000  loss 0.0001  73.1k images/s  1:02:03 left");
  CHECK(shown(60) == "step 2885/28000  loss 0.0001  73.1k images/s  1:02:03 left");
  CHECK(shown(57) == "step 2885/28000  loss 0.0001  73.1k/s  1:02:03 left");
  CHECK(shown(42) == "step 2885/28000  loss 0.0001  1:02:03 left");
  CHECK(shown(40) == "[======      ] loss 0.0001  1:02:03 left");
  CHECK(shown(30) == "loss 0.0001  1:02:03 left");
  CHECK(shown(20) == "1:02:03 left");
  CHECK(shown(8) == "1:02:03");
  CHECK(shown(5).empty());
}

TEST_CASE("a bar that a narrower terminal has broken is removed with all its rows") {
  CHECK(erasure(79, 80) == "\r\x1b[K");
  CHECK(erasure(80, 80) == "\r\x1b[K");
  CHECK(erasure(79, 40) == "\r\x1b[1A\x1b[J");
  CHECK(erasure(81, 40) == "\r\x1b[2A\x1b[J");
  CHECK(erasure(0, 40) == "\r\x1b[K");
}

TEST_CASE("without a terminal to draw on, the status is a message now and then") {
  const TempDir folder;
  const auto told = [&](const std::string& name, std::chrono::milliseconds between) {
    Progress progress(false, between);
    progress.also_to(folder.file(name));
    const auto parts = [](const char* step, const char* left) {
      return std::vector<StatusPart>{{{step}, 0}, {{left, "short"}, 1}};
    };
    progress.status(0.25, parts("step 1/4", "1:02 left"));
    progress.status(0.5, parts("step 2/4", "0:40 left"));
    progress.info("a message");
    progress.status(0.75, parts("step 3/4", "0:20 left"));
    return read_whole_file(folder.file(name));
  };
  // The stderr of a test may be a terminal that can redraw. On any other, the status becomes
  // messages.
  if (!stderr_redraws()) {
    const std::string each = told("each", std::chrono::milliseconds(0));
    check_contains(each, " info step 1/4, 1:02 left\n");
    CHECK(count_of(each, "\n") == 4);
    CHECK(count_of(told("none", std::chrono::hours(1)), "\n") == 1);
  }
  if (!has_pseudo_terminals()) return;
  const auto says = [](Progress& p) {
    p.info("one");
    p.status(0.5, {StatusPart{{"too soon"}, 0}});
  };
  CHECK(on_terminal(100, says, false, "dumb") == "one\r\n");
}

TEST_CASE("a train.log that cannot be written is reported once, and the messages continue") {
  if (!has_pseudo_terminals()) return;
  const std::string output = on_terminal(200, [](Progress& p) {
    p.also_to("/dev/full");
    p.info("one");
    p.info("two");
    p.warn("three");
  });
  CHECK(count_of(output, "warning: train.log: ") == 1);
  check_contains(output, "; the run continues, but messages are missing there\r\n");
  for (const char* line : {"one\r\n", "two\r\n", "warning: three\r\n"}) {
    check_contains(output, line);
  }
}

TEST_CASE("a replica that has checked its kernels counts as checking until all have") {
  // The first check writes the cache, and the second one reads it.
  for (int k = 0; k < 2; ++k) {
    const Job job = small_job(small_config(kSgd), {cpus(1), "train.self_check=always"});
    std::string text;
    run_ranks(job, [&](Backend& backend, Communicator& communicator) {
      check_kernels(job, backend, communicator, [](const std::string&) {});
      text = heartbeat_of_thread()->text();
    });
    CHECK(text == "before its first step, checking kernels");
  }
}
