// dpt completion bash|zsh|fish.
#include "app/help/command_completion.h"

#include <fmt/format.h>

#include "app/base/catalog.h"
#include "app/help/completion.h"
#include "engine/config/config_paths.h"

namespace dpt {

int run_completion(const CompletionOptions& options, const Command& root) {
  fmt::print("{}", completion_script(options.shell, root, config_paths(catalog())));
  return 0;
}

}  // namespace dpt
