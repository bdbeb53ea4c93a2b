// dpt completion bash|zsh|fish.
#include <fmt/format.h>

#include "app/catalog.h"
#include "app/commands.h"
#include "app/completion.h"

namespace dpt {

int run_completion(const CompletionOptions& options, const Command& root) {
  fmt::print("{}", completion_script(options.shell, root, config_paths(catalog())));
  return 0;
}

}  // namespace dpt
