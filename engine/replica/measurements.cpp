#include "engine/replica/measurements.h"

#include <algorithm>

#include "engine/graph/memory.h"
#include "engine/measurements/kinds.h"
#include "engine/replica/work_partition.h"
#include "kernels/base/align.h"
#include "kernels/base/text.h"

namespace dpt {
namespace {

std::size_t bytes_of(const Measurement& measurement) {
  return static_cast<std::size_t>(measurement.floats()) * sizeof(float);
}

}  // namespace

Measurements::Measurements(Backend& backend, const Job& job, ReplicaMemory& memory, bool logs)
    : buckets_(gradient_buckets(job.model.plan, job.placement.bucket_bytes).size()) {
  std::size_t part_bytes = 0, batch_bytes = 0;
  for (const MeasurementKind& kind : all_measurements()) {
    if (!job.spec.log.measured.contains(kind.name) || !(kind.of_parts || logs)) continue;
    List& list = kind.of_parts ? parts_ : batch_;
    list.push_back(kind.make(backend, job));
    (kind.of_parts ? part_bytes : batch_bytes) += bytes_of(*list.back());
  }
  part_floats_ = static_cast<std::int64_t>(aligned(part_bytes) / sizeof(float));
  if (batch_bytes > 0) batch_floats_ = memory.allocate(batch_bytes, "measurements of a step");
}

void Measurements::measure_bucket(PartGradient part, std::size_t bucket) {
  for (const auto& each : parts_) {
    each->measure_part(part, bucket);
    part.floats = part.floats + bytes_of(*each);
  }
}

void Measurements::measure_part(const PartGradient& part) {
  for (std::size_t i = 0; i < buckets_; ++i) measure_bucket(part, i);
}

void Measurements::measure_batch(DevPtr params, DevPtr gradients) {
  DevPtr floats = batch_floats_.ptr();
  for (const auto& each : batch_) {
    each->measure(params, gradients, floats);
    floats = floats + bytes_of(*each);
  }
}

void Measurements::take(const StepResult& result) {
  const auto pass_on = [&](const List& list, std::span<const float> floats) {
    if (floats.empty()) return;
    for (const auto& each : list) {
      const auto count = static_cast<std::size_t>(each->floats());
      each->take(result, floats.first(count));
      floats = floats.subspan(count);
    }
  };
  const auto parts = static_cast<std::size_t>(part_floats_);
  pass_on(parts_, std::span(result.measured).first(parts));
  pass_on(batch_, std::span(result.measured).subspan(parts));
}

void Measurements::log(Json& line) const {
  for (const List* list : {&parts_, &batch_}) {
    for (const auto& each : *list) each->log(line);
  }
}

std::string problem_of_measurements(const Job& job) {
  const auto kinds = all_measurements();
  const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const MeasurementKind& each) {
    return each.of_parts && job.spec.log.measured.contains(each.name);
  });
  if (kind == kinds.end()) return {};
  const std::int64_t batch = job.batch_range(0).size();
  const auto coupling = std::find_if(job.model.plan.nodes.begin(), job.model.plan.nodes.end(),
                                     [](const Node& node) { return node.coupling.has_value(); });
  // Equivalent to Lockstep::couples_pieces.
  const bool together = coupling != job.model.plan.nodes.end();
  for (int rank = 0; rank < job.placement.ranks(); ++rank) {
    const WorkPartition partition =
        partition_batch(batch, job.placement.device_weights, rank, job.spec.train.shards,
                        {job.placement.max_micro_batches[rank], job.spec.train.accumulate});
    if (!part_ends(partition, together).empty()) return {};
  }
  const auto problem = [&](const std::string& text) {
    return fmt::format(
        "log.{0} compares the gradients of a batch and of parts of it, but {1}, or log.{0}=false",
        kind->name, text);
  };
  if (batch < 2) return problem("a batch has one sample: use data.batch_size 2 or more");
  const std::string why =
      together ? fmt::format("and layer '{}' combines all of its samples", coupling->name)
               : fmt::format("which computes all {} samples of a batch at once", batch);
  const bool exact = job.spec.train.shards > 0;
  return problem(fmt::format(
      "here a batch has no parts: there is one {}, {}. Use {}{}", exact ? "shard" : "replica", why,
      exact ? "train.shards=2" : "two devices, or train.shards=2 (exact mode)",
      together ? "" : ", or train.accumulate=2"));
}

}  // namespace dpt
