#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace dpt {

/// Sets the names of the values of all options and arguments of `app`, and the format of its help
/// texts. Call it after all commands are defined.
void name_values(CLI::App& app);

}  // namespace dpt
