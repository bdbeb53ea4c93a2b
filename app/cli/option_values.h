#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace dpt {

/// Gives the values of all options and arguments of `app` their names, and its help texts their
/// form. Called once all commands are defined.
void name_values(CLI::App& app);

}  // namespace dpt
