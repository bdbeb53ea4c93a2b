#include "engine/export/facts.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "kernels/base/json_text.h"

namespace dpt {

std::map<std::string, std::string> metadata_of(const ExportFacts& facts) {
  // Print the shortest text that reads back as the same float: 0.286, not its value as a double.
  const auto list = [](const auto& values) { return fmt::format("[{}]", fmt::join(values, ", ")); };
  std::map<std::string, std::string> metadata{
      {"exported_by", facts.version},
      {"run", facts.run},
      {"checkpoint", facts.checkpoint},
      {"step", std::to_string(facts.step)},
      {"epoch", std::to_string(facts.epoch)},
      {"weights", facts.weights},
      {"loss", facts.loss},
      {"classes", json_text(nlohmann::ordered_json(facts.classes))},
      {"input", list(facts.input)}};
  if (facts.scale) metadata["scale"] = fmt::format("{}", *facts.scale);
  if (!facts.mean.empty()) {
    metadata["mean"] = list(facts.mean);
    metadata["std"] = list(facts.stddev);
  }
  metadata["exif_orientation"] = facts.turns_upright ? "apply" : "ignore";
  metadata["transforms"] = json_text(facts.transforms);
  if (!facts.other_model.empty()) metadata["other_model"] = facts.other_model;
  return metadata;
}

}  // namespace dpt
