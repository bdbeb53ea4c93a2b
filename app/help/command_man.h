#pragma once

#include <string>

namespace dpt {

struct Command;

struct ManOptions {
  std::string folder, prose;
  bool markdown = false;
};

/// Writes a manual page for each command, or the pages of docs/reference about them.
int run_man(const ManOptions& options, const Command& root);

}  // namespace dpt
