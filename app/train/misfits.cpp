#include "app/train/misfits.h"

#include "datasets/dataset.h"
#include "engine/data/normalize.h"
#include "engine/data/transforms.h"
#include "engine/job/statistics_checks.h"
#include "engine/schedules/schedule.h"

namespace dpt {

namespace {

/// Returns a warning about means on the scale 0 to 255; empty if there are none.
std::string unscaled_mean(const DataSpec& data) {
  const DatasetKind& kind = dataset_kind(data.dataset);
  const bool is_u8 = !kind.declares || kind.declares(data.dataset).type == DType::u8;
  if (!is_u8) return {};
  return large_mean(data);
}

}  // namespace

std::vector<std::string> misfits_of(const MisfitContext& run) {
  std::vector<std::string> texts;
  if (!run.has_segments) texts = misfits_of_schedule(run.spec, run.steps_per_epoch);
  texts.push_back(different_normalisation(run.spec.data.transforms));
  texts.push_back(unscaled_mean(run.spec.data));
  if (run.replicas_before) texts.push_back(random_evaluation(run.spec.data.transforms));
  texts.push_back(replica_statistics(run.spec, run.plan, run.replicas, run.replicas_before));
  std::erase(texts, std::string());
  return texts;
}

std::vector<std::string> misfits_of(const Job& job, const TrainStart& start) {
  std::optional<std::size_t> before;
  if (!start.checkpoint.empty()) before = start.point.devices.size();
  return misfits_of({job.spec, job.model.plan, static_cast<std::size_t>(job.placement.ranks()),
                     before, job.data.steps_per_epoch, !job.update.schedule_segments.empty()});
}

}  // namespace dpt
