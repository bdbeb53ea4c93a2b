#include "engine/training/facts.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "engine/spec/read_spec.h"
#include "engine/training/job.h"

namespace dpt {
namespace {

constexpr const char* kConfig = "the config";

std::string place_text(std::size_t rank, const std::vector<std::string>& hosts) {
  return fmt::format("rank {} ({})", rank, hosts[rank]);
}

std::string difference_of_values(const std::string& name, const std::string& one,
                                 const std::string& other, const std::string& on_one,
                                 const std::string& on_other) {
  if (name != kConfig) {
    return fmt::format("{} is \"{}\" on {} and \"{}\" on {}", name, one, on_one, other, on_other);
  }
  const std::vector<std::string> lines = diff_specs(one, other, fields_of_process());
  if (lines.empty()) return {};
  return fmt::format("the config ({} -> {}): {}", on_one, on_other, fmt::join(lines, "; "));
}

}  // namespace

const std::vector<std::string>& fields_of_process() {
  static const std::vector<std::string> fields = {"devices",       "data.root",  "data.train",
                                                  "data.val",      "data.test",  "data.workers",
                                                  "data.prefetch", "data.cache", "weights"};
  return fields;
}

Facts facts_of(const Job& job, const Facts& options) {
  const TrainSpec& spec = job.spec;
  const DataSource& train = *job.splits.train.source;
  std::vector<std::string> layers;
  for (const Param& param : job.plan.params) {
    layers.push_back(fmt::format("{} ({} at {})", param.name, param.count, param.offset));
  }
  Facts facts = {
      {"the program", backends_built_in()},
      {"seed", std::to_string(spec.seed)},
      {"train.precision", name_of(spec.train.precision)},
      {"train.shards", std::to_string(spec.train.shards)},
      {"train.epochs", std::to_string(spec.train.epochs)},
      {"data.batch_size", std::to_string(spec.data.batch_size)},
      {"data.val_split", text_of(spec.data.val_split)},
      {"optimizer", spec.optimizer.type},
      {"optimizer.lr", fmt::format("{}", job.optimizer.lr)},
      {"loss", spec.loss.type},
      {"the number of parameters", std::to_string(job.plan.param_count)},
      {"the layers' parameters", fmt::format("{}", fmt::join(layers, ", "))},
      {"the training data", train.fingerprint()},
      {"the number of training samples", std::to_string(job.splits.train.size())},
      {"the test data",
       job.splits.test.size() > 0 ? job.splits.test.source->fingerprint() : "none"},
      {"the validation samples", validation_fingerprint(job.splits)},
      {"the classes", fmt::format("{}", fmt::join(train.classes(), ", "))},
  };
  // In exact mode the bits are promised for one kind of device and instruction set.
  if (spec.train.shards > 0) {
    std::vector<std::string> kinds;
    for (const DeviceName& device : job.own_devices()) kinds.emplace_back(device.traits().noun);
    std::sort(kinds.begin(), kinds.end());
    kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
    const CpuInfo cpu = cpu_info();
    facts.emplace_back("the processor, which exact mode's bits depend on,",
                       fmt::format("{} {}", cpu.instruction_set, cpu.maker));
    facts.emplace_back("the kind of device, which exact mode's bits depend on,",
                       fmt::format("{}", fmt::join(kinds, ", ")));
  }
  facts.insert(facts.end(), options.begin(), options.end());
  facts.emplace_back(kConfig, job.resolved_config);
  return facts;
}

void compare_and_connect(const Job& job, const Facts& options) {
  if (!job.processes) return;
  job.processes->compare(facts_of(job, options));
  job.processes->connect();
}

std::string difference_of_facts(const std::vector<Facts>& facts,
                                const std::vector<std::string>& hosts) {
  for (std::size_t rank = 1; rank < facts.size(); ++rank) {
    const Facts &first = facts[0], &other = facts[rank];
    for (std::size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
      const bool both = i < first.size() && i < other.size();
      if (!both || first[i].first != other[i].first) {
        return fmt::format("{} and {} do not compare the same things: run the same dpt on both",
                           place_text(0, hosts), place_text(rank, hosts));
      }
      if (first[i].second == other[i].second) continue;
      const std::string difference =
          difference_of_values(first[i].first, first[i].second, other[i].second,
                               place_text(0, hosts), place_text(rank, hosts));
      if (difference.empty()) continue;
      return fmt::format(
          "the processes do not run the same: {}. Start all with the same program, config, options "
          "and data",
          difference);
    }
  }
  return {};
}

}  // namespace dpt
