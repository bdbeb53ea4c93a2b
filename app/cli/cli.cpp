// Parses the command line, runs its command and returns the exit code.
#include "app/cli/cli.h"

#include <fmt/ranges.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <new>
#include <system_error>

#include "app/base/command_support.h"
#include "app/base/console.h"
#include "app/base/world_run.h"
#include "app/cli/cli_options.h"
#include "app/cli/option_values.h"
#include "app/help/command_completion.h"
#include "app/help/command_man.h"
#include "app/help/command_tree.h"
#include "engine/config/fields.h"
#include "engine/config/secrets.h"
#include "engine/config/suggest.h"
#include "engine/processes/stop.h"
#include "kernels/base/error.h"
#include "kernels/base/shell_word.h"
#include "kernels/base/start_thread.h"

namespace dpt {
namespace {

/// Adds `dpt completion`. `app` must outlive the call of `body`.
void add_completion_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<CompletionOptions>();
  CLI::App* completion = app.add_subcommand(
      "completion", "Print a script that completes the commands and options of dpt in a shell");
  completion->add_option("shell", options->shell, "The shell that runs the script")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([&app, &body, options] {
    body = [&app, options] { return run_completion(*options, command_tree(app)); };
  });
}

/// Adds `dpt man`, which the build uses; it is hidden from users.
void add_man_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<ManOptions>();
  CLI::App* man = app.add_subcommand("man", "Write the manual pages of all commands into a folder");
  man->group("");
  man->add_option("folder", options->folder, "The folder, which is created if it does not exist")
      ->required()
      ->check(not_empty());
  man->add_option("--prose", options->prose,
                  "Folder with the text of the pages in addition to the options")
      ->required()
      ->check(not_empty());
  man->add_flag("--markdown", options->markdown,
                "Write the Markdown pages of docs/reference instead");
  man->callback([&app, &body, options] {
    body = [&app, options] { return run_man(*options, command_tree(app)); };
  });
}

/// Runs `work` and returns its exit code. An exception becomes a message and an exit code.
int run_guarded(const std::function<int()>& work) {
  try {
    return work();
  } catch (const Error& error) {
    say(fmt::format("error: {}", error.what()));
    return static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    say("error: out of memory: try a smaller data.batch_size or fewer devices");
    return static_cast<int>(ErrorKind::device);
  } catch (const std::exception& error) {
    // fmt throws this if a print fails: flush_results has the better message.
    if (dynamic_cast<const std::system_error*>(&error) && results_are_lost()) return 0;
    say(fmt::format("unexpected failure: {}", error.what()));
    return static_cast<int>(ErrorKind::unexpected);
  }
}

/// Throws if the word at position `at` is neither an option nor a command of `app`.
void check_command(const CLI::App& app, int argc, const char* const* argv, int at) {
  const std::vector<const CLI::App*> commands = app.get_subcommands({});
  if (commands.empty() || at >= argc || argv[at][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : commands) {
    if (command->get_name() == argv[at]) return check_command(*command, argc, argv, at + 1);
    if (command->get_group().empty()) continue;
    names.push_back(command->get_name());
  }
  const std::string near = closest(argv[at], names);
  const std::string owner = at > 1 ? fmt::format(" of dpt {}", app.get_name()) : "";
  fail(ErrorKind::usage, "unknown command '{}'{}{} Commands{}: {}. See dpt --help", argv[at], owner,
       near.empty() ? "." : fmt::format(", did you mean '{}'?", near), owner,
       fmt::join(names, ", "));
}

/// Returns a message for an option that ends with "=": CLI11 would take its value from the next
/// word. Returns an empty string if there is no such option.
std::string problem_of_values(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") break;
    if (!word.starts_with("--") || word.find('=') != word.size() - 1) continue;
    return fmt::format("{}: expected a value after '=', found an empty string", word);
  }
  return {};
}

/// Returns advice for a missing argument. `argument` is its name in help texts.
std::string step_for_missing(const std::string& argument, const std::string& called) {
  if (argument == "CONFIG") return "`dpt config init > config.yaml` prints one to start from";
  if (argument.starts_with("RUN")) return "`dpt runs` lists the runs in the folder runs/";
  return fmt::format("see {} --help", called);
}

/// Rewrites CLI11's message (`why`) about a missing argument, with the argument's name in help
/// texts and advice. Returns an empty string for other messages.
std::string problem_of_missing(const CLI::App& command, const std::string& called,
                               const std::string& why) {
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = option->get_name();
    const std::string shown = option->get_type_name().empty() ? name : option->get_type_name();
    std::string text;
    if (why == name + " is required") {
      text = fmt::format("{} is required", shown);
    } else if (why.starts_with(name + ": At least ")) {
      text = fmt::format("expected at least {} of {}, found {}", option->get_items_expected_min(),
                         shown, why.substr(why.rfind(' ') + 1));
    } else {
      continue;
    }
    return fmt::format("{}: {} ({}); {}", called, text, option->get_description(),
                       step_for_missing(shown, called));
  }
  return {};
}

/// Returns the equivalent in dpt train of another trainer's option; empty if unknown.
std::string_view form_here(std::string_view option) {
  struct Foreign {
    std::string_view option, here;
  };
  static constexpr Foreign kForeign[] = {
      {"--epochs", "train.epochs=N"},
      {"--batch-size", "data.batch_size=N"},
      {"--batch", "data.batch_size=N"},
      {"--lr", "optimizer.lr=X"},
      {"--learning-rate", "optimizer.lr=X"},
      {"--weight-decay", "optimizer.weight_decay=X"},
      {"--workers", "data.workers=N"},
      {"--num-workers", "data.workers=N"},
      {"--seed", "seed=N"},
      {"--name", "name=NAME"},
      {"--data-dir", "data.root=FOLDER"},
      {"--model", "model.zoo=NAME"},
      {"--pretrained", "weights=pretrained"},
      {"--amp", "train.precision=bf16"},
      {"--gpus", "--devices cuda"},
      {"--output", "--run-dir FOLDER"},
  };
  for (const Foreign& foreign : kForeign) {
    if (foreign.option == option) return foreign.here;
  }
  return {};
}

/// Returns the message of a usage error. If the chosen command does not know a word, reports that
/// word instead of CLI11's message (`why`), which may be a consequence.
std::string usage_problem(const CLI::App& app, const std::string& why) {
  const CLI::App* command = &app;
  std::string called = app.get_name();
  while (command->remaining().empty() && !command->get_subcommands().empty()) {
    command = command->get_subcommands()[0];
    called += " " + command->get_name();
  }
  const std::vector<std::string> extras = command->remaining();
  if (extras.empty()) {
    const std::string missing = problem_of_missing(*command, called, why);
    return missing.empty() ? fmt::format("{}. See {} --help", why, called) : missing;
  }
  const std::string& word = extras[0];
  const std::string shown = without_secrets({word})[0];
  std::vector<std::string> names;
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::string option = word[0] == '-' ? word.substr(0, word.find('=')) : std::string();
  if (const std::string_view here = form_here(option); !here.empty() && called == "dpt train") {
    return fmt::format(
        "unexpected argument '{}' of dpt train; write {} after the config. See dpt "
        "train --help",
        shown, here);
  }
  if (called == "dpt config init" && option.empty() && command->count("--data") == 0) {
    return fmt::format(
        "unexpected argument '{}' of {}; for a config that fits data, write --data {}. See {} "
        "--help",
        shown, called, shell_word(shown), called);
  }
  const std::string near = option.empty() ? option : closest(option, names);
  return fmt::format("unexpected argument '{}' of {}{} See {} --help", shown, called,
                     near.empty() ? "." : fmt::format(", did you mean '{}'?", near), called);
}

/// Defines all commands. `app` and `body` must outlive the call of `body`.
void define_commands(CLI::App& app, CommandBody& body, const std::vector<std::string>& command) {
  app.name("dpt");
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text());
  add_run_commands(app, body, command);
  add_config_commands(app, body);
  add_bench_command(app, body, command);
  add_completion_command(app, body);
  add_man_command(app, body);
  name_values(app);
}

constexpr const char* kAppHelp =
    "dpt trains image classifiers from one YAML file, data-parallel over CPU cores and GPUs. In "
    "exact mode (train.shards) the weights are bit-identical for any number of replicas.";

}  // namespace

Command all_commands() {
  CLI::App app{kAppHelp};
  CommandBody body;
  define_commands(app, body, {});
  return command_tree(app);
}

int run_cli(int argc, const char* const* argv) {
  CLI::App app{kAppHelp};
  CommandBody body;
  const std::vector<std::string> words(argv, argv + argc);
  define_commands(app, body, words);
  remember_secrets_of(words);
  std::string wrong_words;
  const int code = run_guarded([&] {
    prepare_standard_streams();
    try {
      check_command(app, argc, argv, 1);
      wrong_words = problem_of_values(argc, argv);
      if (!wrong_words.empty()) throw Error(ErrorKind::usage, wrong_words);
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
      wrong_words = usage_problem(app, error.what());
      throw Error(ErrorKind::usage, wrong_words);
    }
    // Only `train` has a checkpoint to save before it ends.
    if (!app.got_subcommand("train")) let_signals_end_process();
    return run_with_large_stacks(body);
  });
  if (!wrong_words.empty()) {
    let_signals_end_process();
    report_wrong_words(words, wrong_words);
  }
  // A result that could not be written is a failure, even if the command returned 0.
  const int lost = run_guarded([] {
    flush_results();
    return 0;
  });
  return code != 0 ? code : lost;
}

}  // namespace dpt
