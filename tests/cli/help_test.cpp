// Help texts: width, groups, and notes that appear once.
#include <doctest/doctest.h>

#include <sstream>

#include "app/cli/cli.h"
#include "app/help/help_text.h"
#include "kernels/base/terminal.h"
#include "tests/cli/terminal.h"
#include "tests/cli/tiny.h"
#include "tests/support/pseudo_terminal.h"

using namespace dpt::testing;

namespace {

const dpt::Command& command_named(const dpt::Command& root, const std::string& words) {
  for (const dpt::Command* command : dpt::shown_commands(root)) {
    if (command->words == words) return *command;
  }
  FAIL("no command ", words);
  return root;
}

}  // namespace

TEST_CASE("no line of a help text is wider than asked for, unless it is one word") {
  const dpt::Command root = dpt::all_commands();
  for (const std::size_t columns : {40, 60, 80, 100}) {
    for (const dpt::Command* command : dpt::shown_commands(root)) {
      std::istringstream lines(dpt::help_text(*command, columns));
      for (std::string line; std::getline(lines, line);) {
        INFO("dpt ", command->words, " in ", columns, " columns: ", line);
        const std::size_t first = line.find_first_not_of(' ');
        // A name, or a word that cannot be wrapped.
        const bool is_name = (first == 2 && line.starts_with("  -")) ||
                             line.find(' ', first == line.npos ? 0 : first) == line.npos;
        CHECK((dpt::display_columns(line) <= columns || is_name));
        CHECK((line.empty() || line.back() != ' '));
      }
    }
  }
}

TEST_CASE("descriptions hang below their first line") {
  const dpt::Command root = dpt::all_commands();
  const std::string help = dpt::help_text(command_named(root, "train"), 80);
  check_contains(help,
                 "  --max-steps N             Stop with exit code 0 when the run has completed N\n"
                 "                            steps in total\n");
  const std::string narrow = dpt::help_text(command_named(root, "train"), 40);
  check_contains(narrow,
                 "  --max-steps N\n      Stop with exit code 0 when the run\n"
                 "      has completed N steps in total\n");
}

TEST_CASE("options are grouped, and exit codes stand in the help text of dpt only") {
  const dpt::Command root = dpt::all_commands();
  const std::string help = dpt::help_text(command_named(root, "train"), 80);
  std::size_t at = 0;
  for (const char* part :
       {"\nOptions:\n", "--help", "\nRun folder:\n", "--run-dir", "\nWeights:\n", "--weights",
        "\nConditions for CI:\n", "--require", "\nDevices and processes:\n", "--nproc"}) {
    INFO(part);
    at = help.find(part, at);
    REQUIRE(at != help.npos);
  }
  for (const dpt::Command* command : dpt::shown_commands(root)) {
    const std::string text = dpt::help_text(*command, 80);
    CHECK(contains(text, "Exit codes:") == command->words.empty());
  }
  // In the list of commands, each description is a single clause.
  CHECK_FALSE(contains(dpt::help_text(root, 80), "neither labels nor"));
}

TEST_CASE("a help text is as wide as the terminal") {
  if (!has_pseudo_terminals()) return;
  const Tiny w;
  const std::string narrow = w.run_well({"train", "--help"}).out;
  const std::string wide = on_terminal({"train", "--help"}, w.dir.path());
  CHECK(narrow == dpt::help_text(command_named(dpt::all_commands(), "train"), 80));
  check_contains(wide,
                 "  --max-steps N             Stop with exit code 0 when the run has completed N "
                 "steps in total\r\n");
}

TEST_CASE("messages have colours on a terminal, unless NO_COLOR forbids them") {
  if (!has_pseudo_terminals()) return;
  const Tiny w;
  const std::vector<std::string> wrong = {"eval", "nowhere"};
  check_contains(on_terminal(wrong, w.dir.path(), "", 3), "dpt: \x1b[31merror:\x1b[0m nowhere");
  const std::string plain = on_terminal(wrong, w.dir.path(), "1", 3);
  check_contains(plain, "dpt: error: nowhere");
  CHECK(plain.find('\x1b') == plain.npos);
  // The output is not a terminal.
  check_contains(w.run(wrong).err, "dpt: error: nowhere");
}
