// What the commands of `dpt` share: how they are registered, and how a config becomes a Job.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "engine/training/evaluator.h"
#include "engine/training/job.h"

namespace dpt {

/// A command's work; its result is the exit code.
using CommandBody = std::function<int()>;

/// Each adds its subcommand; parsing the command line sets `body`.
void add_train_command(CLI::App& app, CommandBody& body);
void add_eval_command(CLI::App& app, CommandBody& body);
void add_config_command(CLI::App& app, CommandBody& body);
void add_model_command(CLI::App& app, CommandBody& body);
void add_devices_command(CLI::App& app, CommandBody& body);
void add_inspect_command(CLI::App& app, CommandBody& body);
void add_bench_command(CLI::App& app, CommandBody& body);

/// Runs a command line. The one place where an Error becomes an exit code.
int run_cli(int argc, const char* const* argv);

/// "dpt 0.1.0 (oneDNN 2.6.3, ...)".
std::string version_text();

/// The config with `--devices` as one more override.
std::vector<std::string> with_devices(std::vector<std::string> overrides,
                                      const std::string& devices);

/// Opens the data and builds everything up to, but without, the devices.
Job load_job(TrainSpec spec);

/// `--require val/accuracy>=0.90`.
struct Requirement {
  std::string text, split, metric, relation;
  double bound = 0;
};
/// Throws ErrorKind::usage showing the form.
Requirement parse_requirement(const std::string& text);
bool is_met(const Requirement& requirement, double value);

/// "3h50m", "90s", "2d" -> seconds. Throws ErrorKind::usage showing the form.
std::int64_t parse_duration(const std::string& text);

}  // namespace dpt
