// The results of a run, for tests that compare a disturbed run with an undisturbed one.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/checkpoints/checkpoint.h"
#include "tests/cli/program.h"

namespace dpt::testing {

/// Returns all tensors of a checkpoint except the checksum (which also covers the metadata); empty
/// if the file is damaged.
inline std::string tensors_of(const std::string& path) {
  try {
    const SafetensorsFile file = SafetensorsFile::open(path);
    if (file.check_integrity() != Integrity::good) return {};
    std::string all;
    for (const TensorEntry& entry : file.tensors()) {
      if (entry.name.rfind("dpt.", 0) == 0) continue;
      const auto bytes = file.read(entry);
      all += entry.name;
      all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return all;
  } catch (const Error&) {
    return {};
  }
}

/// Results that must not depend on faults, crashes and stops: the tensors of the newest checkpoint
/// and of the best, and the results in summary.json. A missing item is an empty string.
struct Outcome {
  std::string newest, best, results;
  bool operator==(const Outcome&) const = default;
};

inline Outcome outcome_of(const std::string& folder) {
  using Json = nlohmann::json;
  Outcome outcome;
  const std::string newest = newest_good_checkpoint(folder + "/checkpoints", [](const auto&) {});
  if (!newest.empty()) outcome.newest = newest.substr(newest.rfind('/')) + tensors_of(newest);
  outcome.best = tensors_of(folder + "/best.safetensors");
  const Json summary = Json::parse(read_file(folder + "/summary.json"), nullptr, false);
  if (!summary.is_object()) return outcome;
  Json results;
  for (const char* key :
       {"status", "epochs", "steps", "best", "train", "val", "test", "early_stopped"}) {
    results[key] = summary.contains(key) ? summary[key] : Json();
  }
  outcome.results = results.dump();
  return outcome;
}

/// Returns the step of the newest intact checkpoint of a run folder; 0 if there is none.
inline std::int64_t newest_step(const std::string& folder) {
  const std::string newest = newest_good_checkpoint(folder + "/checkpoints", [](const auto&) {});
  return newest.empty() ? 0 : read_checkpoint_header(newest).state.step;
}

}  // namespace dpt::testing
