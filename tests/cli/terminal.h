// Runs the dpt program on a terminal.
#pragma once

#include <doctest/doctest.h>
#include <pty.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/support/places.h"

namespace dpt::testing {

/// Returns the output of dpt with a 100-column terminal as its streams. The exit code must be
/// `exit_code`. `no_color` is the value of NO_COLOR.
inline std::string on_terminal(const std::vector<std::string>& arguments, const std::string& cwd,
                               const std::string& no_color = "1", int exit_code = 0) {
  winsize size = {};
  size.ws_row = 24;
  size.ws_col = 100;
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, &size);
  REQUIRE(pid >= 0);
  if (pid == 0) {
    std::vector<std::string> words = {dpt_program()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    setenv("NO_COLOR", no_color.c_str(), 1);
    unsetenv("CLICOLOR_FORCE");
    setenv("TERM", "xterm", 1);
    if (chdir(cwd.c_str()) != 0) _exit(126);
    execv(argv[0], argv.data());
    _exit(127);
  }
  std::string output;
  char buffer[4096];
  for (ssize_t n; (n = read(terminal, buffer, sizeof buffer)) > 0;) {
    output.append(buffer, static_cast<std::size_t>(n));
  }
  close(terminal);
  int status = 0;
  waitpid(pid, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == exit_code);
  return output;
}

}  // namespace dpt::testing
