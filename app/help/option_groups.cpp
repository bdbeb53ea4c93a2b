#include "app/help/option_groups.h"

#include <algorithm>
#include <array>

namespace dpt {
namespace {

struct OptionGroup {
  std::string_view title;
  std::vector<std::string_view> options;
};

const std::vector<OptionGroup>& groups() {
  static const std::vector<OptionGroup> all = {
      {"Options", {}},
      {"Run folder", {"--run-dir", "--resume", "--overwrite", "--restore"}},
      {"Data", {"--data", "--split", "--allow-other-data"}},
      {"Weights",
       {"--weights", "--expect-missing", "--expect-left-over", "--use", "--allow-other-model"}},
      {"When to stop", {"--max-steps", "--max-time"}},
      {"Checks without training", {"--dry-run", "--overfit", "--smoke"}},
      {"Output",
       {"--out", "--predictions", "--probabilities", "--format", "--top", "--table", "--json",
        "--csv", "--sort", "--onnx", "--torch", "--plot", "--color"}},
      {"Conditions for CI", {"--require", "--baseline", "--verdict", "--junit"}},
      {"Devices and processes",
       {"--devices", "--device", "--nproc", "--rank", "--world-size", "--coordinator",
        "--join-timeout", "--rank-logs", "--workers"}},
  };
  return all;
}

}  // namespace

std::string option_group(std::string_view option) {
  for (const OptionGroup& group : groups()) {
    if (std::find(group.options.begin(), group.options.end(), option) != group.options.end()) {
      return std::string(group.title);
    }
  }
  return std::string(groups().front().title);
}

std::vector<std::string> option_groups() {
  std::vector<std::string> titles;
  for (const OptionGroup& group : groups()) titles.emplace_back(group.title);
  return titles;
}

}  // namespace dpt
