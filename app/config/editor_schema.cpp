#include "app/config/editor_schema.h"

#include <filesystem>

namespace dpt {

std::string editor_schema_line() {
  // VS Code's YAML extension and other editors with its language server read this comment. A space
  // would end the path, and a line break the comment.
  const std::string form = "# yaml-language-server: $schema=";
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path schema =
      program.parent_path().parent_path() / "share" / "dpt" / "config.schema.json";
  if (!error && std::filesystem::exists(schema, error) &&
      schema.string().find_first_of(" \t\r\n") == std::string::npos) {
    return form + schema.string() + "\n";
  }
  return "# For completion in editors: dpt config schema > dpt.schema.json, and begin this file "
         "with\n"
         "# '" +
         form + "dpt.schema.json'\n";
}

}  // namespace dpt
