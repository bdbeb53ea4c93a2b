#include "app/help/completion.h"

#include "engine/config/config_paths.h"
#include "kernels/base/error.h"

namespace dpt {

std::string completion_script(const std::string& shell, const Command& root,
                              const std::vector<ConfigPath>& paths) {
  if (shell == "bash") return bash_completion(root, paths);
  if (shell == "zsh") return zsh_completion(root, paths);
  if (shell == "fish") return fish_completion(root, paths);
  fail(ErrorKind::usage, "completion: expected bash, zsh or fish, found '{}'", shell);
}

}  // namespace dpt
