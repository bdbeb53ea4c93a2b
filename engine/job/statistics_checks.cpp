#include "engine/job/statistics_checks.h"
#include "engine/layers/activation_shape.h"
#include "kernels/base/text.h"

#include <algorithm>

namespace dpt {
namespace {

/// Number of samples below which the error of a ResNet-50 rises. See Wu and He (2018), "Group
/// Normalization".
constexpr std::int64_t kFewSamples = 16;

std::vector<Range> shards_of(const Job& job, std::int64_t batch) {
  const std::int64_t shards = job.spec.train.shards;
  return shards > 0 ? proportional_parts(batch, DeviceWeights(static_cast<std::size_t>(shards), 1))
                    : proportional_parts(batch, job.placement.device_weights);
}

/// Returns the first layer that computes its statistics per shard; null if none does.
const Node* local_statistics(const Plan& plan) {
  const auto local = std::find_if(plan.nodes.begin(), plan.nodes.end(), [](const Node& node) {
    return node.coupling && !node.coupling->sync;
  });
  return local == plan.nodes.end() ? nullptr : &*local;
}

}  // namespace

std::string problem_of_statistics(const Job& job) {
  for (const Node& node : job.model.plan.nodes) {
    if (!node.coupling) continue;
    const ActivationShape& shape = job.model.plan.values[node.output].shape;
    if (shape.positions() > 1) continue;
    for (const std::int64_t index : {std::int64_t{0}, job.data.steps_per_epoch - 1}) {
      const std::int64_t batch = job.batch_range(index).size();
      std::vector<Range> parts = {{0, batch}};
      if (!node.coupling->sync) parts = shards_of(job, batch);
      const auto single = std::find_if(parts.begin(), parts.end(),
                                       [](const Range& part) { return part.size() == 1; });
      if (single == parts.end()) continue;
      const std::string where = node.where.file.empty() ? std::string() : node.where.text() + ": ";
      const char* which = index == 0 ? "a" : "the last";
      if (node.coupling->sync || batch == 1) {
        return fmt::format(
            "{}layer '{}': expected more than 1 value per channel to normalise, found {} batch of "
            "1 sample; use another data.batch_size",
            where, node.name, which);
      }
      return fmt::format(
          "{}layer '{}': expected more than 1 value per channel to normalise, found {} batch of {} "
          "samples in {} shards, of which shard {} has 1 sample; use sync: true, fewer shards or "
          "replicas, or another data.batch_size",
          where, node.name, which, batch, parts.size(), single - parts.begin());
    }
  }
  return {};
}

std::string small_shards(const Job& job) {
  const Node* local = local_statistics(job.model.plan);
  if (!local) return {};
  const std::int64_t batch = job.batch_range(0).size();
  std::int64_t least = batch;
  for (const Range& shard : shards_of(job, batch)) {
    if (shard.size() > 0) least = std::min(least, shard.size());
  }
  if (least >= kFewSamples) return {};
  if (least == batch) {
    return fmt::format(
        "batch normalisation (layer '{}' and others like it) works on batches of only {}; use a "
        "larger data.batch_size",
        local->name, counted(batch, "sample"));
  }
  return fmt::format(
      "batch normalisation (layer '{}' and others like it) works on shards of only {}; with sync: "
      "true it works on the whole batch of {}",
      local->name, counted(least, "sample"), batch);
}

std::string replica_statistics(const TrainSpec& spec, const Plan& plan, std::size_t replicas,
                               std::optional<std::size_t> before) {
  const Node* local = local_statistics(plan);
  const bool changes = before ? *before != replicas : replicas > 1;
  if (!local || !changes || spec.train.shards > 0) return {};
  const std::string number = before ? fmt::format("the run had {} and continues on {}",
                                                  counted(*before, "replica"), replicas)
                                    : fmt::format("there are {} replicas", replicas);
  return fmt::format(
      "{}, and batch normalisation (layer '{}' and others like it) uses the statistics of each "
      "replica's part of the batch: the result depends on the number of replicas. sync: true in "
      "these layers (model.sync=true for a network of the zoo), or exact mode (train.shards), "
      "makes it the same on any number",
      number, local->name);
}

}  // namespace dpt
