// Completion: the scripts in real shells, and the value names in help texts.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "app/cli/cli.h"
#include "app/help/command_tree.h"
#include "tests/cli/tiny.h"
#include "tests/support/pseudo_terminal.h"
#include "tests/support/skip.h"

using namespace dpt::testing;
namespace fs = std::filesystem;

namespace {

bool is_installed(const std::string& program) {
  if (std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0) return true;
  skip_test(program + " is not installed");
  return false;
}

using Offered = std::set<std::string>;

/// A folder with files of every kind, including the completion script of a shell.
struct Shell : Tiny {
  std::string name;
  explicit Shell(std::string shell) : name(std::move(shell)) {
    write_file(dir.file("script"), run_well({"completion", name}).out);
    fs::create_directories(dir.file("here/runs/one"));
    for (const char* file : {"conf.yaml", "other.yml", "notes.txt", "w.safetensors", "p.jpg"}) {
      write_file(dir.file(std::string("here/") + file), "");
    }
  }

  /// Returns the completions offered after `line`, without descriptions.
  Offered offered(const std::string& line, const std::string& before = "") const {
    fs::remove(dir.file("out"));
    const std::string driver =
        name == "fish" ? "fish --no-config -c 'source ../script; complete -C \"$argv[1]\" >../out'"
                       : fmt::format("{} {}/tests/cli/shells/complete.{} \"$PWD/../script\"",
                                     name == "zsh" ? "zsh -f" : "bash", source_dir(), name);
    const std::string command =
        fmt::format("cd {}/here && HOME=$PWD/.. BEFORE={} timeout 60 {} '{}' {} >../log 2>&1",
                    dir.path(), before, driver, line, name == "fish" ? "" : "\"$PWD/../out\"");
    INFO(line);
    const int status = std::system(command.c_str());
    INFO(read_file(dir.file("log")));
    CHECK(status == 0);
    return parsed(read_file(dir.file("out")), line);
  }

 private:
  Offered parsed(const std::string& text, const std::string& line) const {
    Offered all;
    std::istringstream in(text);
    std::string word;
    // bash has inserted the completions after the existing words.
    const std::size_t before =
        name == "bash" ? static_cast<std::size_t>(std::count(line.begin(), line.end(), ' ')) : 0;
    std::size_t index = 0;
    while (std::getline(in, word)) {
      if (index++ < before) continue;
      word = word.substr(0, word.find('\t'));
      // Shells differ in how they mark a folder, and in how much of the word at the cursor they
      // repeat.
      if (word.ends_with('/')) word.pop_back();
      const std::string typed = line.substr(line.rfind(' ') + 1);
      const std::size_t head = std::min(typed.find_last_of("=,"), typed.size() - 1) + 1;
      if (!typed.empty() && typed.find_first_of("=,") != std::string::npos &&
          word.starts_with(typed.substr(0, head))) {
        word = word.substr(head);
      }
      if (!word.empty()) all.insert(word);
    }
    return all;
  }
};

Offered names_below(const dpt::Command& command) {
  Offered names;
  for (const dpt::Command& below : command.commands) {
    if (!below.is_hidden) names.insert(below.name);
  }
  return names;
}

void check_completion(const Shell& shell) {
  const dpt::Command root = dpt::all_commands();
  CHECK(shell.offered("dpt ") == names_below(root));
  CHECK(shell.offered("dpt tr") == Offered{"train"});
  CHECK(shell.offered("dpt ma").count("man") == 0);
  CHECK(shell.offered("dpt data ") == Offered{"check", "stats", "show"});
  CHECK(shell.offered("dpt completion ") == Offered{"bash", "zsh", "fish"});
  CHECK(shell.offered("dpt config show --") == Offered{"--help", "--origins", "--expand"});
  // Values of options, in both notations.
  CHECK(shell.offered("dpt eval --split ") == Offered{"train", "val", "test"});
  CHECK(shell.offered("dpt eval --split=t") == Offered{"train", "test"});
  CHECK(shell.offered("dpt train conf.yaml --devices cpu,") == Offered{"auto", "cpu", "cuda"});
  CHECK(shell.offered("dpt train conf.yaml --max-steps ").empty());
  // Files or folders, depending on the value.
  CHECK(shell.offered("dpt train ") == Offered{"conf.yaml", "other.yml", "runs"});
  CHECK(shell.offered("dpt eval ") == Offered{"w.safetensors", "runs"});
  CHECK(shell.offered("dpt train conf.yaml --run-dir ") == Offered{"runs"});
  CHECK(shell.offered("dpt train --resume ") ==
        Offered{"auto", "never", "must", "best", "w.safetensors", "runs"});
  CHECK(shell.offered("dpt eval --predictions=no") == Offered{"notes.txt"});
  CHECK(shell.offered("dpt predict runs/one ") ==
        Offered{"p.jpg", "conf.yaml", "other.yml", "runs"});
  CHECK(shell.offered("dpt predict runs/one data.datas") == Offered{"data.dataset="});
  // Options with values before KEY=VALUE do not count as arguments.
  CHECK(shell.offered("dpt train conf.yaml --run-dir runs optimizer.type") ==
        Offered{"optimizer.type="});
  CHECK(shell.offered("dpt train --run-dir runs conf.yaml loss.type=m") == Offered{"mse"});
  CHECK(shell.offered("dpt train conf.yaml train.shards=1 data.shuffle=") ==
        Offered{"true", "false"});
}

}  // namespace

TEST_CASE("completion in bash") {
  if (!is_installed("bash") || !is_installed("script") || !has_pseudo_terminals()) return;
  const Shell shell("bash");
  CHECK(std::system(("bash -n " + shell.dir.file("script")).c_str()) == 0);
  check_completion(shell);
}

TEST_CASE("completion in bash with the package bash-completion") {
  const std::string package = "/usr/share/bash-completion/bash_completion";
  if (!is_installed("bash") || !is_installed("script") || !has_pseudo_terminals()) return;
  if (!fs::exists(package)) return skip_test("bash-completion is not installed");
  const Shell shell("bash");
  CHECK(shell.offered("dpt eval --split=t", package) == Offered{"train", "test"});
  CHECK(shell.offered("dpt train conf.yaml loss.type=m", package) == Offered{"mse"});
}

TEST_CASE("completion in zsh") {
  if (!is_installed("zsh") || !has_pseudo_terminals()) return;
  const Shell shell("zsh");
  CHECK(std::system(("zsh -n " + shell.dir.file("script")).c_str()) == 0);
  check_completion(shell);
}

TEST_CASE("completion in fish") {
  if (!is_installed("fish")) return;
  const Shell shell("fish");
  CHECK(std::system(("fish --no-config -n " + shell.dir.file("script")).c_str()) == 0);
  check_completion(shell);
}

TEST_CASE("completion of an unknown shell is a usage error that names the known ones") {
  const Tiny w;
  const Finished finished = w.run({"completion", "tcsh"});
  CHECK(finished.exit_code == 2);
  CHECK(finished.out.empty());
  for (const char* shell : {"bash", "zsh", "fish"}) check_contains(finished.err, shell);
}

TEST_CASE("every value has a name in help texts, which says what it is") {
  const dpt::Command root = dpt::all_commands();
  const Offered types = {"TEXT", "INT", "UINT", "FLOAT", "NUMBER", "BOOLEAN", "ENUM", "VECTOR"};
  for (const dpt::Command* command : dpt::shown_commands(root)) {
    for (const auto* list : {&command->options, &command->arguments}) {
      for (const dpt::CommandOption& option : *list) {
        // The type's name precedes CLI11's check, as in "INT:POSITIVE".
        const std::string type = option.value.substr(0, option.value.find_first_of(": "));
        INFO("dpt ", command->words, " ", option.name, " has the value ", option.value,
             ": add a line for it to the table in app/help/value_names.cpp");
        CHECK_FALSE(types.contains(type));
        if (option.is_argument) CHECK_FALSE(option.value.empty());
      }
    }
  }
}

TEST_CASE("help texts show the names of values, and what excludes an option once") {
  const Tiny w;
  const std::string help = w.run_well({"train", "--help"}).out;
  check_contains(help, "Usage: dpt train [OPTIONS] CONFIG [KEY=VALUE...]\n");
  check_contains(help, "  --run-dir FOLDER          Run folder (default: runs/NAME)\n");
  check_contains(help, "  --resume auto|never|must|CHECKPOINT\n");
  CHECK_FALSE(contains(help, "TEXT"));
  // --overfit has one note "(not ...)" for seven options, and --nproc has one for three.
  std::size_t notes = 0;
  for (std::size_t at = help.find("(not"); at != help.npos; at = help.find("(not", at + 1)) ++notes;
  CHECK(notes == 2);
  check_contains(w.run_well({"data", "show", "--help"}).out,
                 "Write the image to this PNG file (required)\n");
  check_contains(w.run_well({"export", "--help"}).out, "(with --onnx only)\n");
  // The hidden command `man` is only for the build.
  CHECK_FALSE(contains(w.run_well({"--help"}).out, "  man "));
  CHECK_FALSE(contains(w.run({"nonsense"}).err, ", man"));
}

TEST_CASE("the kinds of --allow that a shell offers are those that data check takes") {
  const Tiny w;
  const std::string refusal = w.run({"data", "check", "small.yaml", "--allow", "nonsense"}).err;
  const dpt::ValueName* value = dpt::value_name("--allow");
  REQUIRE(value);
  check_contains(refusal,
                 fmt::format("expected one of {}\n", fmt::join(dpt::words_of(value->words), ", ")));
}

TEST_CASE("shells show a whole clause for each option") {
  CHECK(dpt::brief("Write a file, e.g. x.csv; replaces it. More") == "Write a file, e.g. x.csv");
  CHECK(dpt::brief("Check all (of a; of b), and exit. More") == "Check all (of a; of b), and exit");
  CHECK(dpt::brief("First line\nSecond") == "First line");
  CHECK(dpt::brief("The number 0.5") == "The number 0.5");
  const std::string script = Tiny().run_well({"completion", "fish"}).out;
  CHECK(script.find("e.g'") == std::string::npos);
}
