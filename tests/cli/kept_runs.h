// Short runs that are stopped, resumed and replaced, and the content of their folders.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/checkpoints/checkpoint.h"
#include "tests/cli/workplace.h"

namespace dpt::testing {

using Words = std::vector<std::string>;

inline std::vector<std::int64_t> steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& path : dpt::list_checkpoints(folder)) {
    steps.push_back(dpt::step_of_checkpoint(std::filesystem::path(path).filename().string()));
  }
  return steps;
}
using Steps = std::vector<std::int64_t>;

/// Runs of three epochs with 12 steps each, and a checkpoint at the end of each epoch.
struct KeptRuns : Workplace {
  Finished train(const Words& more, const std::string& folder = "r") const {
    return run(command(folder), more);
  }
  Finished train_well(const Words& more, const std::string& folder = "r") const {
    return run_well(command(folder), more);
  }
  std::string checkpoint(std::int64_t step, const std::string& folder = "r") const {
    return dir.file(folder + "/checkpoints/" + dpt::checkpoint_name(step));
  }
  std::string best(const std::string& folder = "r") const {
    return dir.file(folder + "/best.safetensors");
  }
  nlohmann::json summary(const std::string& folder = "r") const {
    return nlohmann::json::parse(read_file(dir.file(folder + "/summary.json")));
  }
  std::vector<nlohmann::json> events(const std::string& name, const std::string& folder = "r",
                                     const std::string& file = "metrics.jsonl") const {
    return dpt::testing::events(dir.file(folder + "/" + file), name);
  }

 private:
  static Words command(const std::string& folder) {
    return {"train",
            "small.yaml",
            "--run-dir",
            folder,
            "train.epochs=3",
            "checkpoint.every_steps=0",
            "checkpoint.keep_last=10"};
  }
};

/// Returns the names and contents of all files below a folder, except the lock.
inline std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename() == ".lock") continue;
    files[entry.path().lexically_relative(folder).string()] = read_file(entry.path().string());
  }
  return files;
}

inline dpt::RunState state_of(const std::string& path) {
  return dpt::read_checkpoint_header(path).state;
}

inline std::string checksum_of(const std::string& path) {
  return dpt::read_checkpoint_header(path).checksum;
}

}  // namespace dpt::testing
