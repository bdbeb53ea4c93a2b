#include "engine/job/job_facts.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "engine/data/splits.h"
#include "engine/job/job.h"
#include "kernels/devices.h"

namespace dpt {

Facts facts_of(const Job& job, const Facts& options) {
  const TrainSpec& spec = job.spec;
  const DataSource& train = *job.data.splits.train.source;
  std::vector<std::string> layers;
  for (const Param& param : job.model.plan.params) {
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
      {"optimizer.lr", fmt::format("{}", job.update.optimizer.lr)},
      {"loss", spec.loss.type},
      {"the number of parameters", std::to_string(job.model.plan.param_count)},
      {"the layers' parameters", fmt::format("{}", fmt::join(layers, ", "))},
      {"the training data", train.fingerprint()},
      {"the number of training samples", std::to_string(job.data.splits.train.size())},
      {"the test data",
       job.data.splits.test.size() > 0 ? job.data.splits.test.source->fingerprint() : "none"},
      {"the validation samples", validation_fingerprint(job.data.splits)},
      {"the classes", fmt::format("{}", fmt::join(train.classes(), ", "))},
  };
  // Exact mode promises equal bits for one kind of device and one instruction set.
  if (spec.train.shards > 0) {
    std::vector<std::string> kinds;
    for (const DeviceName& device : job.placement.own_devices()) {
      const bool is_gpu = device.kind == DeviceName::Kind::cuda;
      kinds.push_back(is_gpu ? fmt::format("{}, {}", kind_of(device), cuda_arithmetic())
                             : device.traits().noun);
    }
    std::sort(kinds.begin(), kinds.end());
    kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
    const CpuInfo cpu = cpu_info();
    facts.emplace_back("the processor, which exact mode's bits depend on,",
                       fmt::format("{} {}", cpu.instruction_set, cpu.maker));
    facts.emplace_back("the kind of device, which exact mode's bits depend on,",
                       fmt::format("{}", fmt::join(kinds, ", ")));
  }
  facts.insert(facts.end(), options.begin(), options.end());
  facts.emplace_back(kConfigFact, job.resolved_config);
  return facts;
}

void compare_and_connect(const Job& job, const Facts& options) {
  if (!job.placement.processes) return;
  job.placement.processes->compare(facts_of(job, options));
  job.placement.processes->connect();
}

}  // namespace dpt
