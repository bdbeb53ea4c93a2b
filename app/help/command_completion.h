#pragma once

#include <string>

namespace dpt {

struct Command;

struct CompletionOptions {
  std::string shell;
};

/// Prints the completion script of `root` (command_tree.h) and all commands below it.
int run_completion(const CompletionOptions& options, const Command& root);

}  // namespace dpt
