// Warnings of dpt config check and of the start of dpt train about settings that are allowed but
// probably unintended, or that make the result depend on the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/train/train_start.h"
#include "engine/config/train_spec.h"
#include "engine/graph/plan.h"
#include "engine/job/job.h"

namespace dpt {

struct MisfitContext {
  const TrainSpec& spec;
  const Plan& plan;
  std::size_t replicas = 1;
  std::optional<std::size_t> replicas_before;   ///< in the resumed checkpoint; unset for a new run
  std::optional<std::int64_t> steps_per_epoch;  ///< set if the data is known
  bool has_segments = false;  ///< true if epochs were added: the schedule was reported before
};

/// Returns one sentence for each misfit; empty for most configs.
std::vector<std::string> misfits_of(const MisfitContext& run);

/// Returns the same for a run that begins at `start`.
std::vector<std::string> misfits_of(const Job& job, const TrainStart& start);

}  // namespace dpt
