// Helpers for the definitions of commands: help texts, checks of values, and running a command.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/base/launch_processes.h"

namespace dpt {

/// Function that runs a command and returns its exit code.
using CommandBody = std::function<int()>;

inline constexpr const char* kConfigHelp = "Config file (YAML)";
inline constexpr const char* kOverridesHelp =
    "Replaces a value of the config, e.g. optimizer.lr=0.1 or "
    "model.layers.conv1.out_channels=32";
inline constexpr const char* kDevicesHelp =
    "Devices to use instead of the config's, e.g. cpu,cpu or auto";
inline constexpr const char* kUseHelp =
    "Weights to use: ema or swa (the average that train.ema or train.swa keeps; the default if the "
    "run has one), or raw (the weights themselves)";
inline constexpr const char* kJsonHelp = "Print one JSON object on stdout";

/// Accepts a number of steps or rounds.
inline CLI::Range count() {
  return {std::int64_t{1}, std::int64_t{1'000'000'000}};
}

/// Refuses an empty value, such as that of an unset shell variable.
inline CLI::Validator not_empty() {
  return {[](std::string& text) -> std::string {
            return text.empty() ? "expected a value, found an empty string" : "";
          },
          "", "not empty"};
}

/// Refuses an option of earlier releases; `instead` names the replacement. Hidden from help texts.
inline void refuse_removed(CLI::App* command, const std::string& name, const std::string& instead) {
  command
      ->add_option_function<std::string>(
          name,
          [name, instead](const std::string&) {
            throw CLI::ValidationError(name, "this option was removed: " + instead);
          },
          "Removed")
      ->group("");
}

/// Makes `command` run `run` with its options.
template <class Options>
void set_body(CLI::App* command, CommandBody& body, std::shared_ptr<Options> options,
              int (*run)(const Options&)) {
  command->callback([&body, options, run] { body = [options, run] { return run(*options); }; });
}

/// Makes `command` run `run` with its options, or start several processes of itself if `--nproc` is
/// given.
template <class Options>
void set_body_of_processes(CLI::App* command, CommandBody& body, std::shared_ptr<Options> options,
                           int (*run)(const Options&)) {
  command->callback([&body, options, run] {
    body = [options, run] {
      return must_launch(options->processes)
                 ? launch_processes(options->processes.nproc, options->command)
                 : run(*options);
    };
  });
}

/// Adds the commands that create and use runs: train, eval, predict, export, runs, compare, report.
/// `command` is the whole command line, with which other processes are started.
void add_run_commands(CLI::App& app, CommandBody& body, const std::vector<std::string>& command);
/// Adds the commands for configs, data, devices and files: config, data, model, devices, inspect.
void add_config_commands(CLI::App& app, CommandBody& body);
void add_bench_command(CLI::App& app, CommandBody& body, std::vector<std::string> command);

}  // namespace dpt
