#include "app/cli.h"

#include <cstdio>
#include <new>
#include <regex>

#include "app/catalog.h"
#include "engine/spec/read_spec.h"

namespace dpt {

std::string version_text() {
  return fmt::format("dpt {} ({})", DPT_VERSION, backends_built_in());
}

int run_cli(int argc, const char* const* argv) {
  CLI::App app{
      "dpt trains image classifiers from one YAML file, data-parallel over CPU cores and GPUs, "
      "with the same bits on any number of devices.\n\n"
      "  dpt config init > config.yaml     a config to start from\n"
      "  dpt train config.yaml             train it; the same command again resumes\n"
      "  dpt eval runs/NAME                measure its best checkpoint"};
  app.name("dpt");
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text());
  app.footer(
      "Exit codes: 0 done, 1 unexpected failure, 2 usage or config, 3 data or checkpoint, 4 device "
      "or memory,\n5 diverged, 6 a peer failed, 7 --require not met, 75 stopped on request (run "
      "the "
      "same command to go on),\n130 SIGINT, 143 SIGTERM (checkpoint saved).");
  CommandBody body;
  add_train_command(app, body);
  add_eval_command(app, body);
  add_config_command(app, body);
  add_model_command(app, body);
  add_devices_command(app, body);
  add_inspect_command(app, body);
  add_bench_command(app, body);
  try {
    app.parse(argc, argv);
    return body();
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : static_cast<int>(ErrorKind::usage);
  } catch (const Error& error) {
    fmt::print(stderr, "dpt: error: {}\n", error.what());
    return static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr,
               "dpt: error: out of memory: try a smaller data.batch_size or fewer devices\n");
    return static_cast<int>(ErrorKind::device);
  } catch (const std::exception& error) {
    fmt::print(stderr, "dpt: unexpected failure: {}\n", error.what());
    return static_cast<int>(ErrorKind::unexpected);
  }
}

std::vector<std::string> with_devices(std::vector<std::string> overrides,
                                      const std::string& devices) {
  if (!devices.empty()) overrides.push_back("devices=[" + devices + "]");
  return overrides;
}

Job load_job(TrainSpec spec) {
  const Plan plan = make_plan(spec);
  const DataSets sets = open_dataset(spec.data.dataset, data_demand(spec, plan));
  std::string resolved = show_spec(catalog(), spec);
  return make_job(std::move(spec), sets, std::move(resolved));
}

Requirement parse_requirement(const std::string& text) {
  static const std::regex form(R"(\s*(train|val|test)/(loss|accuracy)\s*(>=|<=|>|<)\s*(\S+)\s*)");
  std::smatch match;
  Requirement requirement{text, {}, {}, {}, 0};
  std::size_t used = 0;
  if (std::regex_match(text, match, form)) {
    requirement.split = match[1];
    requirement.metric = match[2];
    requirement.relation = match[3];
    const std::string number = match[4];
    try {
      requirement.bound = std::stod(number, &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (used == number.size()) return requirement;
  }
  fail(ErrorKind::usage,
       "--require '{}': expected SPLIT/METRIC RELATION NUMBER, such as val/accuracy>=0.90 "
       "(splits: train, val, test; metrics: loss, accuracy; relations: >=, <=, >, <)",
       text);
}

bool is_met(const Requirement& requirement, double value) {
  if (requirement.relation == ">=") return value >= requirement.bound;
  if (requirement.relation == "<=") return value <= requirement.bound;
  if (requirement.relation == ">") return value > requirement.bound;
  return value < requirement.bound;
}

std::int64_t parse_duration(const std::string& text) {
  static const std::regex form(R"((?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s?)?)");
  std::smatch match;
  if (text.empty() || !std::regex_match(text, match, form)) {
    fail(ErrorKind::usage, "'{}' is no duration: expected a form such as 3h50m, 90s or 2d", text);
  }
  const auto part = [&](std::size_t i) { return match[i].matched ? std::stoll(match[i]) : 0LL; };
  return ((part(1) * 24 + part(2)) * 60 + part(3)) * 60 + part(4);
}

}  // namespace dpt
